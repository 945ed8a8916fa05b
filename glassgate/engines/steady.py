"""Matrix products whose bits do not depend on how many threads torch has."""

from torch import Tensor

MOST_TERMS = 512
"""torch's library shares a long sum out among threads, and a short one never."""


def product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b`."""
    if a.shape[1] <= MOST_TERMS:
        return a.mm(b)
    return add_product(a.new_empty(a.shape[0], b.shape[1]), a, b, keep=False)


def add_product(out: Tensor, a: Tensor, b: Tensor, keep: bool = True) -> Tensor:
    """`a @ b` added to `out`, in place; or instead of what `out` holds."""
    out.addmm_(a[:, :MOST_TERMS], b[:MOST_TERMS], beta=int(keep))
    for start in range(MOST_TERMS, a.shape[1], MOST_TERMS):
        out.addmm_(a[:, start : start + MOST_TERMS], b[start : start + MOST_TERMS])
    return out
