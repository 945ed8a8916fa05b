"""Compiles the kernels of some cells for GPUs that need not be present: `python -m tests.engines.triton_gpu.offline`.

The process must not run Triton's interpreter. ptxas from Triton's wheel reports registers and spills.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import glassgate as gg
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import differentiated
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.emit import Kernel, Kernels, kernels
from glassgate.engines.triton_gpu.launch import Blocks, compiled, source
from glassgate.engines.triton_gpu.persistent import persistent
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.select import Chip, blocks_of, grid, solo

CELLS = {
    "RNN": gg.cells.RNN(), "LSTM": gg.cells.LSTM(), "GRU": gg.cells.GRU(), "GRUv1": gg.cells.GRUv1(),
    "PeepholeLSTM": gg.cells.PeepholeLSTM(), "CIFG": gg.cells.CIFG(), "MGU": gg.cells.MGU(), "JANET": gg.cells.JANET(),
    "SLSTM": gg.cells.SLSTM(heads=4), "MinGRU": gg.cells.MinGRU(), "LayerNormGRU": gg.cells.LayerNormGRU(),
    "LayerNormLSTM": gg.cells.LayerNormLSTM(),
}  # fmt: skip
SIZES = (64, 256, 768)
CHIPS = {80: Chip(108, 166_912), 90: Chip(132, 232_448), 100: Chip(148, 232_448)}
PAGE = Path(__file__).parents[3] / "docs" / "gpu-compiled.md"
ROWS = 16
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class Report(NamedTuple):
    """One kernel, compiled.

    Attributes:
        registers: per thread.
        spilled: bytes that did not fit into registers.
        shared: bytes of shared memory.
        products: instructions of tensor cores.
        weights: loads of weights inside the loop over time, of a kernel that runs all steps.
        barriers: inside that loop.
    """

    registers: int
    spilled: int
    shared: int
    products: int
    weights: int
    barriers: int


class Case(NamedTuple):
    """One kernel of a cell.

    Attributes:
        cell: its name in `CELLS`.
        letter: "A", "B" or "C".
        sizes: the hidden sizes for which it is the same.
        phases: of its pass.
        written: the kernels of its text.
        kernel: itself.
        blocks: of its programs.
    """

    cell: str
    letter: str
    sizes: str
    phases: Phases
    written: Kernels
    kernel: Kernel
    blocks: Blocks


def cases(cell: str, dtype: torch.dtype) -> Iterator[Case]:
    """The kernels of a cell, forward and backward in training. Most kernels C do not depend on the hidden size."""
    equations = equations_of(CELLS[cell])
    trace = differentiated(equations, COSTS)
    for title, build in (("forward", forward_pass), ("backward", backward_pass)):
        phases = Phases(build(equations, trace, Form(save=True)))
        written = kernels(phases, title, ragged=False)
        done: dict[tuple[str, Blocks], int] = {}
        for H in SIZES:
            sizes = {"T": 100, "N": ROWS, "H": H, "P": H, "heads": phases.heads}
            for kernel in written.steps:
                done.setdefault((kernel.name, blocks_of(kernel, sizes, dtype)), H)
        for (name, blocks), H in done.items():
            kernel = next(kernel for kernel in written.steps if kernel.name == name)
            same = sum(other == name for other, _ in done) == 1
            yield Case(cell, "C", "any" if same else str(H), phases, written, kernel, blocks)
        if not phases.products:
            continue
        for letter, H, kernel_of in (("A", 64, solo), ("B", 768, grid)):
            sizes = {"T": 100, "N": ROWS, "H": H, "P": H, "heads": phases.heads}
            found = kernel_of(phases, sizes, dtype, CHIPS[80])
            if found is not None and found.blocks is not None:
                kernel = persistent(phases, title, False, letter == "A", found.chunks)
                yield Case(cell, letter, str(H), phases, Kernels(None, (kernel,)), kernel, found.blocks)


def report(case: Case, chip: int, dtype: torch.dtype) -> Report:
    """One kernel, compiled for a chip, with products of a type."""
    kernel, blocks = case.kernel, case.blocks
    function = compiled(source(case.written), False)[kernel.name]
    kinds = {p.parameter: kind_of(p.kind, p.value.type.dtype, dtype) for p in kernel.pointers} | {"arrived": "*i32"}
    constants = {"ROWS": blocks.rows, "UNITS": blocks.units, "COLUMNS": blocks.columns, "PRECISION": "ieee"}
    parameters = function.arg_names
    signature = {p: "constexpr" if p in constants else kinds.get(p, "i32") for p in parameters}
    fixed = ("turn", "T", "N", "heads")
    attributes = {(k,): [["tt.divisibility", 16]] for k, p in enumerate(parameters) if p not in (*constants, *fixed)}
    made = triton.compile(
        ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes),
        target=GPUTarget("cuda", chip, 32),
        options={"num_warps": blocks.warps, "num_stages": 1},
    )
    ptx = made.asm["ptx"]
    products = len(re.findall(r"mma\.sync|wgmma\.mma|tcgen05\.mma", ptx))
    body = loop_of(made.asm["ttgir"]) if case.letter != "C" else ""
    weights = len(re.findall(rf"tt\.load .*tensor<{blocks.columns}x{blocks.units}x!tt.ptr<bf16>", body))
    arrivals = len(re.findall(r"tt\.atomic_rmw", body))
    return Report(*assembled(ptx, chip), made.metadata.shared, products, weights, arrivals // 2)


def loop_of(text: str) -> str:
    """The outermost loop of a kernel in Triton's representation for GPUs."""
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if "scf.for" in line)
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = next(k for k in range(first + 1, len(lines)) if lines[k].startswith(" " * indent + "}"))
    return "\n".join(lines[first:last])


def kind_of(kind: str, number: str, dtype: torch.dtype) -> str:
    """The type of a pointer."""
    return "*" + ("u8" if number == "bool" else TYPES[dtype] if kind in ("shared", "weight") else "fp32")


def assembled(ptx: str, chip: int) -> tuple[int, int]:
    """Registers per thread and spilled bytes, as ptxas reports them."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    tool = tools / ("ptxas-blackwell" if chip >= 100 and (tools / "ptxas-blackwell").exists() else "ptxas")
    architecture = re.search(r"\.target (sm_\w+)", ptx)
    assert architecture is not None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        command = [tool, "-v", f"--gpu-name={architecture[1]}", "kernel.ptx", "-o", "kernel.cubin"]
        text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
    return int(re.findall(r"Used (\d+) registers", text)[0]), sum(
        map(int, re.findall(r"(\d+) bytes spill stores", text))
    )


HEAD = """\
# Kernels compiled without a GPU

Triton {version} compiles the [GPU kernels](gpu.md) for chips that may be absent, and ptxas reports their resources.
`python -m tests.engines.triton_gpu.offline` generates this page, and a test compares it. The batch has {rows} sequences
without lengths and resets. Where chips differ, an entry has one number for each. *Weights* counts loads of weights
inside the loop over time: 0 proves that they stay on the chip. *Tensor cores* counts instructions; products of float32
do not use them. None of these kernels has run on a GPU.

| products | chips | cell | H | kernel | registers | spilled bytes | shared bytes | tensor cores | weights | barriers |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def line(case: Case, dtype: torch.dtype, chips: Sequence[int]) -> str:
    """A row of the table."""
    found = [report(case, chip, dtype) for chip in chips]
    shown = [" / ".join(map(str, values if len({*values}) > 1 else values[:1])) for values in zip(*found, strict=True)]
    if case.letter == "C":
        shown[-2:] = "", ""
    of_chips = " / ".join(f"sm_{chip}" for chip in chips)
    first = [TYPES[dtype], of_chips, case.cell, case.sizes, f"{case.letter} {case.kernel.name}"]
    return f"| {' | '.join([*first, *shown])} |\n"


def lines(names: Iterable[str]) -> Iterator[str]:
    """The rows of some cells."""
    for dtype in (torch.bfloat16, torch.float32):
        for cell in names:
            for case in cases(cell, dtype):
                everywhere = dtype == torch.bfloat16 and (case.letter == "C" or cell == "LSTM")
                if dtype == torch.bfloat16 or (case.letter == "C" and not case.phases.by_rows):
                    yield line(case, dtype, [*CHIPS] if everywhere else [90])


def main(names: Sequence[str]) -> None:
    """Prints the rows of some cells; without names, writes the page."""
    if names:
        print(*lines(names), sep="", end="")
        return
    with PAGE.open("w") as page:
        page.write(HEAD.format(version=triton.__version__, rows=ROWS))
        for row in lines(CELLS):
            page.write(row)
            page.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
