"""Samples the next token from scores, with temperature, top-k and top-p."""

import torch
from torch import Tensor

from glassgate.tasks.errors import OptionError

COLDEST = 1e-30
"""The minimum temperature above 0, so that float32 can represent the quotient."""


def choose(logits: Tensor, temperature: float, top_k: int, top_p: float, random: torch.Generator) -> int:
    """Return the index of a sampled token.

    Args:
        logits: the scores, `(V,)`
        temperature: the divisor of the logits; 0 selects the largest
        top_k: sample only from this many of the largest logits; 0 for all
        top_p: sample only from the largest logits that together have this probability
        random: the random generator

    Example:
        >>> choose(torch.tensor([0.0, 9.0, 8.0]), 1.0, 1, 1.0, torch.Generator())
        1
    """
    if temperature == 0:
        return int(logits.argmax())
    scaled = (logits - logits.max()) / max(temperature, COLDEST)
    chances, order = scaled.softmax(-1).sort(descending=True, stable=True)
    before = chances.cumsum(-1) - chances
    allowed = before < top_p
    allowed[0] = True
    if top_k:
        allowed[top_k:] = False
    return int(order[torch.multinomial(chances * allowed, 1, generator=random)])


def check_draw(length: int, temperature: float, top_k: int, top_p: float, seed: int | None) -> None:
    """Raise OptionError for settings outside their range."""
    if seed is not None and not 0 <= seed < 2**64:
        raise OptionError(f"seed: expected 0 to 2**64 - 1, got {seed}")
    if length < 0:
        raise OptionError(f"length: expected 0 or more, got {length}")
    if not temperature >= 0:
        raise OptionError(f"temperature: expected 0 or more, got {temperature}")
    if top_k < 0:
        raise OptionError(f"top_k: expected 0 or more, got {top_k}")
    if not 0 < top_p <= 1:
        raise OptionError(f"top_p: expected more than 0 and at most 1, got {top_p}")
