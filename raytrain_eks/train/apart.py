"""The proof that a family of models keeps the documents of a packed row apart.

Which positions see which is said by a mask, and by position ids that restart. Most families of transformers obey both;
recurrent ones carry a state over the boundary whatever the mask says, and a release may change its mind. So a small
stand-in of the same family is asked: what it says of two documents in one row must be what it says of each alone.
"""

from typing import Any

import torch

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train.loss import additive, attention_mask
from raytrain_eks.train.masking import position_offset
from raytrain_eks.train.sizes import shrunk

FIRST, SECOND, VOCABULARY = 7, 9, 97
"""Tokens of the two documents, and of the stand-in's vocabulary."""
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TOLERANCE = 1e-4
"""Between logits, fp32; a document that is seen by another changes them by far more."""


def prove_apart(job: Job, config: Any) -> bool:
    """Whether it was proven; False where no small stand-in of the family can be built. Raises SpecError when packed
    documents see each other, or padding is seen."""
    from raytrain_eks.train.model import attention_of

    model = stand_in(job, config, attention_of(job, config))
    if model is None:
        return False
    try:
        worst = apart(model, causal=job.task != "mlm", packed=job.data.pack)
    except (RuntimeError, TypeError, ValueError) as error:
        refused = str(error).splitlines()[0]
        rule = f"{config.model_type} cannot be told which positions see which ({refused})"
        raise SpecError([Problem(path="model", rule=rule, fix="choose another family of models")]) from None
    if worst <= TOLERANCE:
        return True
    what = "documents of a packed row" if job.data.pack else "padding and text"
    rule = f"{config.model_type} mixes {what}: its logits change by {worst:.2g} with what else is in the row"
    fix = "write `data.pack: false`" if job.data.pack else "choose another family of models"
    raise SpecError([Problem(path="data.pack", rule=rule, fix=fix)])


def stand_in(job: Job, config: Any, attention: str) -> Any:
    """A small model with random weights of the config's family; None where there is none."""
    from transformers import AutoConfig

    from raytrain_eks.train.model import model_class

    try:
        sizes = shrunk(config.to_dict(), positions=32, vocabulary=VOCABULARY)
        small = AutoConfig.for_model(config.model_type, **sizes, **SPECIAL)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = model_class(job.task).from_config(small, attn_implementation=attention, dtype=torch.float32).eval()
            model(input_ids=torch.zeros((1, FIRST), dtype=torch.long), use_cache=False)
            return model
    except Exception:  # whatever a family does not like about small numbers says nothing about the job
        return None


@torch.no_grad()
def apart(model: Any, *, causal: bool, packed: bool = True) -> float:
    """The largest difference between logits of a document in a row with another (or with padding) and alone."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(5, VOCABULARY, (1, FIRST + SECOND), generator=generator)
    segments = torch.tensor([[1] * FIRST + [2 if packed else 0] * SECOND])
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None] + position_offset(model)
    mask = attention_mask(segments, causal=causal)
    assert mask is not None
    if model.config._attn_implementation == "eager":
        mask = additive(mask)
    together = model(input_ids=row, attention_mask=mask, position_ids=positions, use_cache=False).logits
    worst = 0.0
    for part in (slice(0, FIRST), slice(FIRST, None))[: 2 if packed else 1]:
        alone = model(input_ids=row[:, part], position_ids=positions[:, part], use_cache=False).logits
        worst = max(worst, float((together[:, part] - alone).abs().max()))
    return worst
