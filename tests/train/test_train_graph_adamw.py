"""AdamW for graphs against PyTorch's: the same numbers, past the step where bias corrections become exactly 1."""

import pytest
import torch

from raytrain_eks.train.engines.graph_adamw import GraphAdamW

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("betas", "steps"), [((0.9, 0.95), 900), ((0.0, 0.999), 20), ((0.9, 0.999), 200)])
def test_it_is_pytorchs(betas, steps):
    torch.manual_seed(1)
    start = torch.randn(4, 3)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    vector, other = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    groups = [{"params": [ours], "weight_decay": 0.1}, {"params": [vector], "weight_decay": 0.0}]
    made = GraphAdamW(groups, betas=betas, eps=1e-8)
    reference = torch.optim.AdamW(
        [{"params": [theirs], "weight_decay": 0.1}, {"params": [other], "weight_decay": 0.0}], betas=betas, eps=1e-8
    )
    for step in range(steps):
        rate = 1e-3 * (1 + step % 7)
        for mine, its in ((ours, theirs), (vector, other)):
            mine.grad = torch.randn_like(mine)
            its.grad = mine.grad.clone()
        made.update(torch.tensor(rate), torch.tensor(True))
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(vector, other, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(made.state[ours]["exp_avg_sq"], reference.state[theirs]["exp_avg_sq"])


def test_an_update_that_is_not_applied_leaves_no_trace():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    made = GraphAdamW([{"params": [weight], "weight_decay": 0.1}], betas=(0.9, 0.95), eps=1e-8)
    weight.grad = torch.full((2, 2), float("nan"))
    made.update(torch.tensor(0.1), torch.tensor(False))
    assert torch.equal(weight, torch.ones(2, 2))
    assert made.steps == 0
    assert all(not kept.any() for kept in made.state[weight].values())


def test_state_is_there_before_the_first_step():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    made = GraphAdamW([{"params": [weight], "weight_decay": 0.1}], betas=(0.9, 0.95), eps=1e-8)
    assert set(made.state[weight]) == {"exp_avg", "exp_avg_sq"}
