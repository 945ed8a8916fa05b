"""Memory of calls."""

import re
from pathlib import Path

import pytest
import torch

from glassgate.engines.memory import LARGE, empty

MAPS = Path("/proc/self/smaps")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags(address):
    """What Linux has noted of the memory at an address."""
    for block in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", MAPS.read_text()):
        start, end = (int(v, 16) for v in block.split(maxsplit=1)[0].split("-"))
        if start <= address < end:
            return re.search(r"VmFlags: (.*)", block)[1].split()
    raise AssertionError("no such memory")


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="no huge pages here")
def test_large_memory_is_asked_for_in_huge_pages():
    for size, dtype in ((LARGE, torch.uint8), (LARGE // 2 + 5, torch.float64)):
        memory = empty((size,), dtype)
        assert (memory.shape, memory.dtype, memory.device.type) == ((size,), dtype, "cpu")
        assert "hg" in flags(memory.data_ptr() + size // 2)
        assert memory.fill_(3)[[0, -1]].tolist() == [3, 3]
