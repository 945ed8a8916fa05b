"""Compiles the kernels of some cells for GPUs that need not be present: `python -m tests.engines.triton_gpu.offline`.

The process must not run Triton's interpreter. ptxas from Triton's wheel reports registers and spills.
"""

import re
import subprocess
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import glassgate as gg
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Role, Shift
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import differentiated
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.emit import kernels
from glassgate.engines.triton_gpu.kernel import CONSTANTS, Kernel, Pointer, both, in_graph
from glassgate.engines.triton_gpu.launch import ALL_REGISTERS, Blocks, compiled, source
from glassgate.engines.triton_gpu.persistent import persistent
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.select import Chip, blocks_of, grid, solo

CELLS = {
    "RNN": gg.cells.RNN(), "LSTM": gg.cells.LSTM(), "GRU": gg.cells.GRU(), "GRUv1": gg.cells.GRUv1(),
    "PeepholeLSTM": gg.cells.PeepholeLSTM(), "CIFG": gg.cells.CIFG(), "MGU": gg.cells.MGU(), "JANET": gg.cells.JANET(),
    "SLSTM": gg.cells.SLSTM(heads=4), "MinGRU": gg.cells.MinGRU(), "LayerNormGRU": gg.cells.LayerNormGRU(),
    "LayerNormLSTM": gg.cells.LayerNormLSTM(),
}  # fmt: skip
CALLERS = ("RNN", "LSTM", "LayerNormLSTM")
"""The cells whose kernels are also compiled in a CUDA graph and for both directions."""
FLOAT32 = ("RNN",)
"""The cells with kernels for products in TF32, torch's default, and in float32."""
SIZES = (64, 256, 768)
CHIPS = {80: Chip(108, 166_912), 90: Chip(132, 232_448), 100: Chip(148, 232_448)}
PAGE = Path(__file__).parents[3] / "docs" / "gpu-compiled.md"
ROWS = 16
PRODUCTS = {
    "bf16": (torch.bfloat16, "ieee"), "tf32": (torch.float32, "tf32"), "fp32": (torch.float32, "ieee")
}  # fmt: skip
"""The type of the operands of products, and how those of float32 are multiplied, by the name in the table."""
TYPES = {"fp32": "float32", "bf16": "bfloat16", "u8": "uint8"}


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
        kernels: the kernel, or before a kernel that calls others the ones of each direction.
        blocks: of its programs.
    """

    cell: str
    letter: str
    sizes: str
    phases: Phases
    kernels: list[Kernel]
    blocks: Blocks

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.kernels[-1].name


def cases(cell: str, products: str) -> Iterator[Case]:
    """The kernels of a cell, forward and backward in training. Most kernels C do not depend on the hidden size."""
    equations, dtype = equations_of(CELLS[cell]), PRODUCTS[products][0]
    trace = differentiated(equations, COSTS)
    for title, build in (("forward", forward_pass), ("backward", backward_pass)):
        phases, reverse = (Phases(build(equations, trace, Form(save=True, reverse=r))) for r in (False, True))
        done: dict[tuple[Kernel, Blocks], list[int]] = {}
        steps = kernels(phases, title, ragged=False).steps
        for H in SIZES:
            sizes = {"T": 100, "N": ROWS, "H": H, "P": H, "heads": phases.heads}
            for kernel in steps:
                done.setdefault((kernel, blocks_of(kernel, sizes, dtype, CHIPS[90])), []).append(H)
        for (kernel, blocks), every in done.items():
            shown = "any" if len(every) == len(SIZES) else ", ".join(map(str, every))
            yield Case(cell, "C", shown, phases, [kernel], blocks)
            if products == "bf16" and cell in CALLERS and every[-1] == SIZES[-1]:
                types = [element(p, phases, products) for p in kernel.pointers]
                caller = in_graph([kernel], [TYPES[t] for t in types], [True] * len(types))
                yield Case(cell, "C", shown, phases, [kernel, caller], blocks)
        # Heads of 32 units: the blocks of weights differ from those of sequences, which have 16 rows.
        for letter, H, kernel_of in (("A", 64 if phases.heads == 1 else 128, solo), ("B", 768, grid)):
            sizes = {"T": 100, "N": ROWS, "H": H, "P": H, "heads": phases.heads}
            choice = kernel_of(phases, sizes, dtype, CHIPS[80], 1) if phases.products else None
            if choice is not None and choice.blocks is not None:
                two = [
                    persistent(each, name, False, letter == "A", choice.chunks)
                    for each, name in ((phases, title), (reverse, f"{title}_reverse"))
                ]
                yield Case(cell, letter, str(H), phases, two[:1], choice.blocks)
                if products == "bf16" and cell in CALLERS:
                    yield Case(cell, letter, str(H), phases, [*two, both(two)], choice.blocks)


def report(case: Case, chip: int, products: str) -> Report:
    """One kernel, compiled for a chip. If it spills, again with all registers, as for a launch."""
    first = compiled_for(case, chip, products, {})
    return min(first, compiled_for(case, chip, products, ALL_REGISTERS), key=spilled_by) if first.spilled else first


def spilled_by(report: Report) -> int:
    """The spilled bytes of a kernel."""
    return report.spilled


def compiled_for(case: Case, chip: int, products: str, more: Mapping[str, int]) -> Report:
    """One kernel, compiled for a chip, with more options."""
    blocks, called = case.blocks, case.kernels[:-1] or case.kernels
    function = compiled(source(case.kernels), False)[case.name]
    kinds = {"arrived": "*i32", "table": "*i64"}
    for k, kernel in enumerate(called):
        for p in kernel.pointers:
            name = p.parameter if len(case.kernels) == 1 else f"{p.parameter}_{k}"
            kinds[name] = "*" + element(p, case.phases, products)
    values = (blocks.rows, blocks.units, blocks.columns, PRODUCTS[products][1])
    constants = dict(zip(CONSTANTS, values, strict=True))
    parameters = function.arg_names
    signature = {p: "constexpr" if p in constants else kinds.get(p, "i32") for p in parameters}
    fixed = ("iteration", "T", "N", "heads", "first", "step")
    attributes = {(k,): [["tt.divisibility", 16]] for k, p in enumerate(parameters) if p not in (*constants, *fixed)}
    made = triton.compile(
        ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes),
        target=GPUTarget("cuda", chip, 32),
        options={"num_warps": blocks.warps, "num_stages": 1, **more},
    )
    ptx = made.asm["ptx"]
    instructions = len(re.findall(r"mma\.sync|wgmma\.mma|tcgen05\.mma", ptx))
    body = loop_of(made.asm["ttgir"]) if case.letter != "C" else ""
    weights = len(re.findall(rf"tt\.load .*tensor<{blocks.columns}x{blocks.units}x!tt.ptr<", body))
    arrivals = len(re.findall(r"tt\.atomic_rmw", body))
    return Report(*assembled(ptx, chip), made.metadata.shared, instructions, weights, arrivals // 2)


def loop_of(text: str) -> str:
    """The outermost loop of a kernel in Triton's representation for GPUs."""
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if "scf.for" in line)
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = next(k for k in range(first + 1, len(lines)) if lines[k].startswith(" " * indent + "}"))
    return "\n".join(lines[first:last])


def element(pointer: Pointer, phases: Phases, products: str) -> str:
    """The type of the elements of a tensor in a call with results of the type of products, as Triton abbreviates it."""
    value, program = pointer.value, phases.program
    if value.type.dtype == "bool":
        return "u8"
    operand = "fp32" if products == "tf32" else products
    if pointer.kind != "sequence":
        return operand if pointer.kind in ("shared", "weight") else "fp32"
    shifts = {line.result: line.operation.x for line in program.before if isinstance(line.operation, Shift)}
    ports = {value: port for side in (program.inputs, program.outputs) for port, value in side.items()}
    port = ports.get(shifts.get(value, value))
    if port is None or port.role is Role.KEPT:
        return "fp32" if port and port.name.startswith("row") else operand
    if port.role is Role.STATES:
        return operand if port.name == "h" else "fp32"
    return "fp32" if port.role in (Role.D_STATES, Role.NOISE) else operand


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
without lengths and resets. Where chips differ, an entry has one number for each. A kernel *in_graph* is
kernel C in a CUDA graph; a kernel *both* runs both directions. *Weights* is the number of loads of weights inside the
loop over time: with 0 loads they stay on the chip. *Tensor cores* is the number of tensor-core instructions; matrix
products in float32 (fp32) do not use them. A kernel that would spill is compiled again with up to 255 registers per
thread. None of these kernels has run on a GPU.

| products | chips | cell | H | kernel | registers | spilled bytes | shared bytes | tensor cores | weights | barriers |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def line(case: Case, products: str, chips: Sequence[int]) -> str:
    """A row of the table."""
    reports = [report(case, chip, products) for chip in chips]
    shown = [
        " / ".join(map(str, values if len({*values}) > 1 else values[:1])) for values in zip(*reports, strict=True)
    ]
    if case.letter == "C":
        shown[-2:] = "", ""
    of_chips = " / ".join(f"sm_{chip}" for chip in chips)
    first = [products, of_chips, case.cell, case.sizes, f"{case.letter} {case.name}"]
    return f"| {' | '.join([*first, *shown])} |\n"


def lines(names: Iterable[str], chips: Sequence[int] = tuple(CHIPS)) -> Iterator[str]:
    """The rows of some cells."""
    for products in PRODUCTS:
        for cell in [name for name in names if products == "bf16" or name in FLOAT32]:
            for case in cases(cell, products):
                every_chip = products == "bf16" and len(case.kernels) == 1
                yield line(case, products, chips if every_chip else [90])


def main() -> None:
    """Prints the rows of some cells; without names, writes the page."""
    parser = ArgumentParser()
    parser.add_argument("cells", nargs="*")
    parser.add_argument("--chips", type=int, nargs="+", default=[*CHIPS])
    options = parser.parse_args()
    if options.cells:
        for row in lines(options.cells, options.chips):
            print(row, end="", flush=True)
        return
    with PAGE.open("w") as page:
        page.write(HEAD.format(version=triton.__version__, rows=ROWS))
        for row in lines(CELLS):
            page.write(row)
            page.flush()


if __name__ == "__main__":
    main()
