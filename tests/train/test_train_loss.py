"""The loss is a sum over trained tokens; packed documents neither see nor train each other."""

import torch
from torch.nn.functional import cross_entropy

from raytrain_eks.train.loss import attention_mask, summed_loss, trained_tokens


def test_the_sum_over_next_tokens():
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 11), torch.tensor([[1, 2, 3, 4, 5], [6, 7, -100, 8, -100]])
    expected = sum(
        cross_entropy(logits[row, t], labels[row, t + 1])
        for row in range(2)
        for t in range(4)
        if labels[row, t + 1] != -100
    )
    assert torch.allclose(summed_loss(logits, labels), expected)
    assert int(trained_tokens(labels)) == 6


def test_a_row_without_labels_gives_zero_and_no_nan():
    logits = torch.randn(1, 4, 7, requires_grad=True)
    loss = summed_loss(logits, torch.full((1, 4), -100))
    loss.backward()
    assert loss.item() == 0
    assert bool((logits.grad == 0).all())


def test_whole_documents_need_no_mask():
    assert attention_mask(torch.tensor([[1, 1, 1], [2, 2, 2]])) is None


def test_packed_documents_are_blocks_and_padding_sees_itself():
    mask = attention_mask(torch.tensor([[1, 1, 2, 0]]))
    assert mask.shape == (1, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_both_directions_within_a_document_where_nothing_is_causal():
    mask = attention_mask(torch.tensor([[1, 1, 2]]), causal=False)
    assert mask[0, 0].int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
