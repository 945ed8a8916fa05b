"""Samples the next token from scores, with temperature, top-k and top-p."""

import torch
from torch import Tensor

from glassgate.tasks.errors import OptionError

MIN_TEMPERATURE = 1e-30
"""The minimum temperature above 0. In float32, scores divided by a smaller temperature could become NaN."""


def sample_token(logits: Tensor, temperature: float, top_k: int, top_p: float, random: torch.Generator) -> int:
    """Sample a token, and return its index.

    Args:
        logits: the scores, `(V,)`
        temperature: the divisor of the logits; 0 selects the largest
        top_k: sample only from this many of the largest logits; 0 for all
        top_p: sample only from the smallest set of most probable tokens with at least this total probability
        random: the random generator

    Example:
        >>> sample_token(torch.tensor([0.0, 9.0, 8.0]), 1.0, 1, 1.0, torch.Generator())
        1
    """
    if temperature == 0:
        return int(logits.argmax())
    scaled = (logits - logits.max()) / max(temperature, MIN_TEMPERATURE)
    probabilities, order = scaled.softmax(-1).sort(descending=True, stable=True)
    probability_before = probabilities.cumsum(-1) - probabilities
    is_allowed = probability_before < top_p
    is_allowed[0] = True
    if top_k:
        is_allowed[top_k:] = False
    return int(order[torch.multinomial(probabilities * is_allowed, 1, generator=random)])


def check_sampling(length: int, temperature: float, top_k: int, top_p: float, seed: int | None) -> None:
    """Check the arguments of `LanguageModel.generate`.

    Raises:
        OptionError: a value is out of its range
    """
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
