"""Compiles the kernels of some cells for GPUs that need not be present: `python -m tests.engines.triton_gpu.offline`.

The process must not run Triton's interpreter. ptxas from Triton's wheel reports registers and spills.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
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
from glassgate.engines.triton_gpu.emit import Kernel, kernels
from glassgate.engines.triton_gpu.launch import Blocks, compiled, source
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.select import blocks_of

CELLS = {
    "RNN": gg.cells.RNN(), "LSTM": gg.cells.LSTM(), "GRU": gg.cells.GRU(), "GRUv1": gg.cells.GRUv1(),
    "PeepholeLSTM": gg.cells.PeepholeLSTM(), "CIFG": gg.cells.CIFG(), "MGU": gg.cells.MGU(), "JANET": gg.cells.JANET(),
    "SLSTM": gg.cells.SLSTM(heads=4), "MinGRU": gg.cells.MinGRU(), "LayerNormGRU": gg.cells.LayerNormGRU(),
    "LayerNormLSTM": gg.cells.LayerNormLSTM(),
}  # fmt: skip
SIZES = (64, 256, 768)
CHIPS = (80, 90, 100)
ROWS = 16
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class Report(NamedTuple):
    """One kernel, compiled.

    Attributes:
        registers: per thread.
        spilled: bytes that did not fit into registers.
        shared: bytes of shared memory.
        products: instructions of tensor cores.
    """

    registers: int
    spilled: int
    shared: int
    products: int


def reports(name: str, H: int, chip: int, dtype: torch.dtype) -> Iterator[tuple[str, Report]]:
    """The kernels of a cell, forward and backward in training, each with its report."""
    equations = equations_of(CELLS[name])
    trace = differentiated(equations, COSTS)
    for title, build in (("forward", forward_pass), ("backward", backward_pass)):
        phases = Phases(build(equations, trace, Form(save=True)))
        written = kernels(phases, title, ragged=False)
        functions = compiled(source(written), False)
        sizes = {
            "T": 100,
            "N": ROWS,
            "H": H,
            "P": H,
            "heads": phases.heads,
        }
        for kernel in written.steps:
            yield kernel.name, report(functions[kernel.name], kernel, blocks_of(kernel, sizes, dtype), chip, dtype)


def report(function: object, kernel: Kernel, blocks: Blocks, chip: int, dtype: torch.dtype) -> Report:
    """One kernel, compiled for a chip, with products of a type."""
    kinds = {p.parameter: kind_of(p.kind, p.value.type.dtype, dtype) for p in kernel.pointers}
    constants = blocks._asdict() | {"precision": "ieee"}
    constants = {key.upper(): value for key, value in constants.items() if key != "warps"}
    parameters = function.arg_names  # type: ignore[attr-defined]
    signature = {p: "constexpr" if p in constants else kinds.get(p, "i32") for p in parameters}
    signature |= {"arrived": "*i32"} if "arrived" in parameters else {}
    fixed = ("turn", "T", "N", "heads")
    attributes = {(k,): [["tt.divisibility", 16]] for k, p in enumerate(parameters) if p not in (*constants, *fixed)}
    made = triton.compile(
        ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes),  # type: ignore[arg-type]
        target=GPUTarget("cuda", chip, 32),
        options={"num_warps": blocks.warps, "num_stages": 1},
    )
    ptx = made.asm["ptx"]
    registers, spilled = assembled(ptx, chip)
    products = len(re.findall(r"mma\.sync|wgmma\.mma|tcgen05\.mma", ptx))
    return Report(registers, spilled, made.metadata.shared, products)


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


if __name__ == "__main__":
    import sys
    import time

    for cell in sys.argv[1].split(","):
        for H in map(int, sys.argv[2].split(",")):
            for chip in map(int, sys.argv[3].split(",")):
                t = time.process_time()
                for name, found in reports(cell, H, chip, getattr(torch, sys.argv[4])):
                    print(cell, H, chip, name, *found, f"{time.process_time() - t:.1f}s", flush=True)
