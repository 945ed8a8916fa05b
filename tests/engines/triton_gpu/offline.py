"""Compiles the kernels of some cells for GPUs that may be absent: `python -m tests.engines.triton_gpu.offline`.

The process must not run Triton's interpreter. Triton's ptxas reports registers and spills.
"""

import re
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import glassgate as gg
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Role, Shift
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.emit import write_step_kernels
from glassgate.engines.triton_gpu.kernel import CONSTANTS, Kernel, Pointer, join_directions, kernel_in_graph
from glassgate.engines.triton_gpu.launch import ALL_REGISTERS, Blocks, compile_module, module_text
from glassgate.engines.triton_gpu.persistent import write_persistent_kernel
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.select import Chip, blocks_of, estimate_grid, estimate_solo

CELLS = {
    "RNN": gg.cells.RNN(), "LSTM": gg.cells.LSTM(), "GRU": gg.cells.GRU(), "GRUv3": gg.cells.GRUv3(),
    "PeepholeLSTM": gg.cells.PeepholeLSTM(), "CIFG": gg.cells.CIFG(), "MGU": gg.cells.MGU(), "JANET": gg.cells.JANET(),
    "SLSTM": gg.cells.SLSTM(heads=4), "MinGRU": gg.cells.MinGRU(), "LayerNormGRU": gg.cells.LayerNormGRU(),
    "LayerNormLSTM": gg.cells.LayerNormLSTM(),
}  # fmt: skip
CALLERS = ("RNN", "LSTM", "LayerNormLSTM")
"""The cells whose kernels are also compiled in a CUDA graph and for both directions."""
FLOAT32 = ("RNN",)
"""The cells whose kernels are also compiled for products of float32 numbers, in TF32 and in full precision."""
SIZES = (64, 256, 768)
CHIPS = {80: Chip(108, 166_912), 90: Chip(132, 232_448), 100: Chip(148, 232_448)}
PAGE = Path(__file__).parents[3] / "benchmarks" / "results" / "gpu" / "compiled.md"
ROWS, MANY_ROWS = 16, 64
"""The number of sequences. Some chips multiply blocks of 64 rows with other instructions."""
WIDE = ("LSTM",)
"""The cells whose kernels B and C are also compiled for `MANY_ROWS` sequences."""
RAGGED = ("LSTM", "GRU")
"""The cells whose kernels are also compiled for sequences with lengths and resets."""
BEFORE = "3.6.0"
"""The previous version of Triton. It compiles the kernels only for sm_90."""
PRODUCTS = {
    "bf16": (torch.bfloat16, "ieee"), "tf32": (torch.float32, "tf32"), "fp32": (torch.float32, "ieee")
}  # fmt: skip
"""The dtype of the operands of products and the precision of float32 products, by their name in the table."""
TYPES = {"fp32": "float32", "bf16": "bfloat16", "u8": "uint8"}


class Report(NamedTuple):
    """The resources and instructions of a compiled kernel.

    Attributes:
        registers: the number of registers per thread.
        spilled: the bytes of spilled registers.
        shared: the bytes of shared memory.
        products: the number of tensor-core instructions.
        weights: the number of loads of weights inside the loop over time; 0 for kernel C.
        barriers: the number of barriers inside this loop.
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
        cell: the name of the cell in `CELLS`.
        N: the number of sequences.
        ragged: whether the sequences have lengths and resets.
        letter: "A", "B" or "C".
        sizes: the hidden sizes for which the kernel is the same.
        phases: the phases of the pass.
        kernels: the kernels that the kernel calls, then the kernel itself.
        blocks: the blocks of a program.
    """

    cell: str
    N: int
    ragged: bool
    letter: str
    sizes: str
    phases: Phases
    kernels: list[Kernel]
    blocks: Blocks

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.kernels[-1].name

    @property
    def batch(self) -> str:
        """The entry for the batch in the table."""
        return f"{self.N} ragged" if self.ragged else str(self.N)


def cases(cell: str, products: str, N: int = ROWS, ragged: bool = False) -> Iterator[Case]:
    """Yield the kernels of a cell for training, forward and backward. With `MANY_ROWS` sequences, omit kernel A.

    Most kernels C do not depend on the hidden size, and are yielded only once.
    """
    equations, dtype = equations_of(CELLS[cell]), PRODUCTS[products][0]
    trace = build_trace(equations, COSTS)
    for title, build in (("forward", forward_pass), ("backward", backward_pass)):
        phases, reverse = (
            Phases(build(equations, trace, Form(save=True, reverse=r, lengths=ragged, resets=ragged)))
            for r in (False, True)
        )
        done: dict[tuple[Kernel, Blocks], list[int]] = {}
        steps = write_step_kernels(phases, title, ragged).steps
        for H in SIZES:
            sizes = {"T": 100, "N": N, "H": H, "P": H, "heads": phases.heads}
            for kernel in steps:
                done.setdefault((kernel, blocks_of(kernel, sizes, dtype, CHIPS[90])), []).append(H)
        for (kernel, blocks), every in done.items():
            shown = "any" if len(every) == len(SIZES) else ", ".join(map(str, every))
            yield Case(cell, N, ragged, "C", shown, phases, [kernel], blocks)
            if products == "bf16" and cell in CALLERS and N == ROWS and every[-1] == SIZES[-1]:
                types = [element(p, phases, products) for p in kernel.pointers]
                caller = kernel_in_graph([kernel], [TYPES[t] for t in types], [True] * len(types))
                yield Case(cell, N, ragged, "C", shown, phases, [kernel, caller], blocks)
        # Heads of 32 units: the blocks of weights differ from those of sequences, which have 16 rows.
        persistent_kernels = [("A", 64 if phases.heads == 1 else 128, estimate_solo), ("B", 768, estimate_grid)]
        for letter, H, kernel_of in persistent_kernels if N == ROWS else persistent_kernels[1:]:
            sizes = {"T": 100, "N": N, "H": H, "P": H, "heads": phases.heads}
            choice = kernel_of(phases, sizes, dtype, CHIPS[80], 1) if phases.products else None
            if choice is not None and choice.blocks is not None:
                two = [
                    write_persistent_kernel(each, name, ragged, letter == "A", choice.chunks)
                    for each, name in ((phases, title), (reverse, f"{title}_reverse"))
                ]
                yield Case(cell, N, ragged, letter, str(H), phases, two[:1], choice.blocks)
                if products == "bf16" and cell in CALLERS and N == ROWS and not ragged:
                    yield Case(
                        cell, N, ragged, letter, str(H), phases, [*two, join_directions(tuple(two))], choice.blocks
                    )


def compile_case(case: Case, chip: int, products: str) -> Report:
    """Compile a kernel for a chip. If it spills, compile it again with all registers, as `Launch` does."""
    first = compile_with(case, chip, products, {})
    return min(first, compile_with(case, chip, products, ALL_REGISTERS), key=spilled_by) if first.spilled else first


def spilled_by(report: Report) -> int:
    """The spilled bytes of a kernel."""
    return report.spilled


def compile_with(case: Case, chip: int, products: str, more: Mapping[str, int]) -> Report:
    """Compile a kernel for a chip with additional options."""
    blocks, called = case.blocks, case.kernels[:-1] or case.kernels
    function = compile_module(module_text(case.kernels), False)[case.name]
    kinds = {"arrived": "*i32", "table": "*i64", "starts": "*i64"}
    for k, kernel in enumerate(called):
        for p in kernel.pointers:
            name = p.parameter if len(case.kernels) == 1 else f"{p.parameter}_{k}"
            kinds[name] = "*" + element(p, case.phases, products)
    values = (blocks.rows, blocks.units, blocks.columns, PRODUCTS[products][1])
    constants = dict(zip(CONSTANTS, values, strict=True))
    parameters = function.arg_names
    signature = {p: "constexpr" if p in constants else kinds.get(p, "i32") for p in parameters}
    fixed = ("iteration", "T", "N", "heads", "first", "step")
    made, log = compile_function(function, signature, constants, fixed, chip, {"num_warps": blocks.warps, **more})
    ptx = made.asm["ptx"]
    instructions = len(re.findall(r"mma\.sync|wgmma\.mma|tcgen05\.mma", ptx))
    body = loop_of(made.asm["ttgir"]) if case.letter != "C" else ""
    weights = len(re.findall(rf"tt\.load .*tensor<{blocks.columns}x{blocks.units}x!tt.ptr<", body))
    arrivals = len(re.findall(r"tt\.atomic_rmw", body))
    return Report(*resources(log), made.metadata.shared, instructions, weights, arrivals // 2)


def compile_function(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, object],
    unaligned: Sequence[str],
    chip: int,
    options: Mapping[str, int],
) -> tuple[Any, str]:
    """Compile a kernel for a chip. Return it, and the log of ptxas.

    Args:
        function: the kernel as a Triton function.
        signature: the type of each parameter.
        constants: the values of compile-time constants.
        unaligned: the other parameters that need not be multiples of 16.
        chip: the number of the chip, such as 90.
        options: options of Triton.
    """
    parameters = enumerate(function.arg_names)
    attributes = {(k,): [["tt.divisibility", 16]] for k, p in parameters if p not in (*constants, *unaligned)}
    triton.knobs.compilation.always_compile = triton.knobs.nvidia.dump_ptxas_log = True
    with redirect_stdout(StringIO()) as log:
        made = triton.compile(
            ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes),
            target=GPUTarget("cuda", chip, 32),
            options={"num_stages": 1, **options},
        )
    return made, log.getvalue()


def loop_of(text: str) -> str:
    """The outermost loop of a kernel in Triton's representation for GPUs."""
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if "scf.for" in line)
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = next(k for k in range(first + 1, len(lines)) if lines[k].startswith(" " * indent + "}"))
    return "\n".join(lines[first:last])


def element(pointer: Pointer, phases: Phases, products: str) -> str:
    """Triton's abbreviation for the dtype of a tensor, in a call whose results have the dtype of products."""
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


def resources(log: str) -> tuple[int, int]:
    """Registers per thread and spilled bytes, from the log of ptxas."""
    return int(re.findall(r"Used (\d+) registers", log)[0]), sum(map(int, re.findall(r"(\d+) bytes spill stores", log)))


HEAD = f"""\
# Kernels compiled without a GPU

Triton can compile the [GPU kernels](../../../docs/gpu.md) without a GPU. Its assembler, ptxas, reports the registers
and the shared memory of each kernel. None of these kernels has run on a GPU. The version of Triton for PyTorch 2.13
compiles them for three chips, and version {BEFORE} for sm_90. `python -m tests.engines.triton_gpu.offline` generates
the rows of the installed version, and a test compares them with the table.

- **batch:** the number of sequences. *ragged* sequences have lengths and resets.
- **kernel:** [A, B or C](../../../docs/gpu.md#how-it-works). *in_graph* is kernel C in a CUDA graph. *both* runs both
  directions.
- **registers:** per thread. A kernel that would spill is compiled again with up to 255 registers per thread.
- **spilled, shared:** sizes of spilled registers and of shared memory, in bytes.
- **MMA:** the number of tensor-core instructions. Matrix products in float32 (fp32) do not use them.
- **weights:** the number of loads of weights inside the loop over time. With 0 loads the weights stay on the chip.
- **barriers:** the number of barriers inside the loop over time.

Where chips differ, an entry has one number per chip.

| Triton | products | chips | cell | batch | H | kernel | registers | spilled | shared | MMA | weights | barriers |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def line(case: Case, products: str, chips: Sequence[int]) -> str:
    """A row of the table."""
    return row(case, products, chips, [compile_case(case, chip, products) for chip in chips])


def row(case: Case, products: str, chips: Sequence[int], reports: Sequence[Report]) -> str:
    """A row of the table from the reports for some chips."""
    shown = [
        " / ".join(map(str, values if len({*values}) > 1 else values[:1])) for values in zip(*reports, strict=True)
    ]
    if case.letter == "C":
        shown[-2:] = "", ""
    of_chips = " / ".join(f"sm_{chip}" for chip in chips)
    first = [triton.__version__, products, of_chips, case.cell, case.batch, case.sizes, f"{case.letter} {case.name}"]
    return f"| {' | '.join([*first, *shown])} |\n"


def every_case(names: Iterable[str]) -> Iterator[tuple[Case, str, Sequence[int]]]:
    """Yield the rows of some cells: the kernel, the name of the dtype of products, and the chips."""
    for products in PRODUCTS:
        for cell in [name for name in names if products == "bf16" or name in FLOAT32]:
            batches = [(ROWS, False)]
            if products == "bf16":
                batches += [(MANY_ROWS, False)] * (cell in WIDE) + [(ROWS, True)] * (cell in RAGGED)
            for N, ragged in batches:
                for case in cases(cell, products, N, ragged):
                    usual = products == "bf16" and len(case.kernels) == 1 and not ragged
                    yield case, products, tuple(CHIPS) if usual and triton.__version__ != BEFORE else (90,)


def is_in_half(case: Case, products: str) -> bool:
    """Whether `--half` prints a kernel. For each letter and dtype of products, it prints the forward or backward pass.

    For kernels that call other kernels, it prints the opposite pass.
    """
    number = "CAB".index(case.letter) + [*PRODUCTS].index(products) + (len(case.kernels) > 1)
    return (number + ("backward" in case.name)) % 2 == 0


def main() -> None:
    """Print the rows of some cells. Without names, replace the rows of this version of Triton in the page."""
    parser = ArgumentParser()
    parser.add_argument("cells", nargs="*")
    parser.add_argument("--half", action="store_true", help="print half of the rows")
    arguments = parser.parse_args()
    if arguments.cells:
        for case, products, chips in every_case(arguments.cells):
            if not arguments.half or is_in_half(case, products):
                print(line(case, products, chips), end="", flush=True)
        return
    rows = [text for text in PAGE.read_text().splitlines(keepends=True) if text[:3].strip("| ").isdigit()]
    kept = [text for text in rows if not text.startswith(f"| {triton.__version__} ")]
    is_current = triton.__version__ != BEFORE
    made: list[str] = []
    for each in every_case(CELLS):
        made.append(line(*each))
        PAGE.write_text(HEAD + "".join([*made, *kept] if is_current else [*kept, *made]))


if __name__ == "__main__":
    main()
