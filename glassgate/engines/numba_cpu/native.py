"""Kernels that no cell decides: a fixed text to machine code, for this processor."""

from functools import cache

from glassgate.engines.numba_cpu.amx import multiplier
from glassgate.engines.numba_cpu.compile import Function, compiled
from glassgate.engines.numba_cpu.processor import Processor


def native(text: str, bits: int = 64, terms: int = 0, **values: int) -> Function:
    """The machine code of a text with one function.

    Args:
        text: in which `{NAME}` stands for a value.
        bits: of the numbers that it computes with.
        terms: how it multiplies them, see `Sizes.terms`.
        values: by name.
    """
    return _native(text, bits, tuple(values.items()), multiplier(terms))


@cache
def _native(text: str, bits: int, values: tuple[tuple[str, int], ...], processor: Processor) -> Function:
    for name, value in values:
        text = text.replace(f"{{{name}}}", str(value))
    return compiled(text, text.split("(")[0].removeprefix("\ndef "), bits, processor)
