"""What products of bfloat16 are compiled for: tile registers where they are there, allowed, and have been tried."""

from glassgate.engines.numba_cpu.processor import Processor, host


def multiplier(bfloat16: bool) -> Processor:
    """What products are compiled for, of numbers as they are or rounded to bfloat16."""
    return host() if bfloat16 else host().whole
