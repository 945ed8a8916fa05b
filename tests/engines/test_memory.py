"""Allocation of memory: huge pages, reused blocks, matrices in one block."""

import re
from pathlib import Path

import pytest
import torch

from glassgate.engines.blocks import HUGE_PAGE, Blocks
from glassgate.engines.memory import LARGE, REUSED, Matrices, MatrixBlock, empty
from glassgate.system import SYSTEM

MAPS = Path("/proc/self/smaps")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags(address):
    """The flags of Linux for the memory at an address; "hg" means that huge pages are requested."""
    for block in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", MAPS.read_text()):
        start, end = (int(v, 16) for v in block.split(maxsplit=1)[0].split("-"))
        if start <= address < end:
            return re.search(r"VmFlags: (.*)", block)[1].split()
    raise AssertionError("no such memory")


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="no huge pages here")
def test_large_memory_uses_huge_pages():
    for size, dtype in ((LARGE, torch.uint8), (LARGE // 2 + 5, torch.float64)):
        memory = empty((size,), dtype)
        assert (memory.shape, memory.dtype, memory.device.type) == ((size,), dtype, "cpu")
        assert "hg" in flags(memory.data_ptr() + size // 2)
        assert memory.fill_(3)[[0, -1]].tolist() == [3, 3]


def test_matrices_in_one_block_do_not_overlap():
    matrices = Matrices(MatrixBlock(3, (("f", 2), ("h", 1), ("c", 2)), torch.float64))
    assert matrices.addresses() == [v.data_ptr() for v in matrices.values()]
    for k, matrix in enumerate(matrices.values()):
        matrix.fill_(k + 1)
    matrices.zero_from(2)
    assert {name: v.tolist() for name, v in matrices.items()} == {
        "f": [[1, 1], [1, 1], [0, 0]],
        "h": [[2], [2], [0]],
        "c": [[3, 3], [3, 3], [0, 0]],
    }
    assert len(matrices) == 3
    assert "g" not in matrices


@pytest.mark.skipif(not SYSTEM.has_huge_pages, reason="no huge pages here")
def test_very_large_memory_is_reused_after_its_last_tensor_is_freed():
    first = empty((REUSED // 4, 1), torch.float32)
    assert (first.shape, first.dtype) == ((REUSED // 4, 1), torch.float32)
    assert first.is_contiguous()
    assert not first._is_view()
    assert "hg" in flags(first.data_ptr() + REUSED // 2)
    start, row = first.data_ptr(), first[5:6]
    row.fill_(7.0)
    del first
    other = empty((REUSED,), torch.uint8)
    assert other.data_ptr() != start, "a row of the first tensor still exists"
    other.zero_()
    assert row.item() == 7.0
    del row
    assert empty((REUSED // 8,), torch.float64).data_ptr() == start


@pytest.mark.skipif(not SYSTEM.has_huge_pages, reason="no huge pages here")
def test_free_memory_is_limited_and_reused_blocks_are_at_most_twice_as_large_as_needed():
    blocks = Blocks(max_free=4 * HUGE_PAGE)

    def take(pages):
        memory = blocks.take(pages * HUGE_PAGE - 1)
        return memory, torch.frombuffer(memory, dtype=torch.uint8).data_ptr()

    def free():
        return [len(block) // HUGE_PAGE for block in blocks._free]

    one, two, three = (take(pages) for pages in (1, 2, 3))
    address_of_one, address_of_two = one[1], two[1]
    del one, two, three
    assert free() == [1, 2, 3]
    assert take(2)[1] == address_of_two
    assert free() == [1, 3, 2]
    small = take(1)
    assert small[1] == address_of_one
    assert free() == [2], "of 5 pages, the block that was freed first is unmapped"
    del small
    large = take(5)
    assert len(large[0]) == 5 * HUGE_PAGE
    assert free() == [2, 1]
