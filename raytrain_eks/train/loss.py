"""The loss of language models as a sum over trained tokens, and the attention mask of packed rows."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100
"""The label of a position that is not trained (Hugging Face's and PyTorch's own value)."""


def summed_loss(logits: Tensor, labels: Tensor, *, causal: bool = True) -> Tensor:
    """Sum of the cross-entropies of the trained tokens, in nats, as a float32 scalar.

    logits: [rows, length, vocabulary]; labels: int64 [rows, length], not shifted: position t is trained to give
    labels[t + 1] where that is not -100, or labels[t] where nothing is causal and tokens were masked. The sum, not the
    mean: only the number of trained tokens of the whole global batch is the right divisor, whatever the split into
    micro-batches and ranks.
    """
    if causal:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return cross_entropy(
        logits.float().reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=IGNORED, reduction="sum"
    )


def trained_tokens(labels: Tensor) -> Tensor:
    """How many positions of `labels` [rows, length] are trained, as an int64 scalar."""
    return (labels[:, 1:] != IGNORED).sum()


def attention_mask(segments: Tensor, *, causal: bool = True) -> Tensor | None:
    """Which positions see which: bool [rows, 1, length, length], True where a query (dim 2) may see a key (dim 3).

    segments: int64 [rows, length], the number of the document at each position, 0 for padding. None when every row is
    one whole document: the model's own causal mask says the same and runs the faster kernel. A padded position sees
    itself, since a row of the softmax without any key would be NaN.
    """
    if causal and bool((segments == segments[:, :1]).all()) and bool((segments > 0).all()):
        return None
    return explicit_mask(segments, causal=causal)


def explicit_mask(segments: Tensor, *, causal: bool = True) -> Tensor:
    """The mask of `attention_mask` whatever the values are: the host never waits for the device, the graph is fixed."""
    length = segments.shape[1]
    same = (segments[:, :, None] == segments[:, None, :]) & (segments > 0)[:, :, None]
    if causal:
        same &= torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    return (same | torch.eye(length, dtype=torch.bool, device=segments.device))[:, None]


def additive(mask: Tensor) -> Tensor:
    """A mask of what may be seen as numbers to add to scores, fp32: 0, or the least number.

    transformers' `eager` attention adds whatever mask it is given, and adding True would hide nothing.
    """
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, torch.finfo(torch.float32).min)
