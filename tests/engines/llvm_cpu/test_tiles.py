"""Tile registers: the interpreter compared with NumPy, the encoding of the instructions, and the trial of AMX.

Other modules test matrix products on tile registers, with the interpreter.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from array import array
from functools import cache, partial
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from llvmlite import ir

from glassgate.engines.llvm_cpu import amx, trial
from glassgate.engines.llvm_cpu import compile as compiling
from glassgate.engines.llvm_cpu.cache import path_of
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from glassgate.engines.llvm_cpu.simd.instructions import INT64, words
from glassgate.engines.llvm_cpu.simd.tiles import TileInstructions
from glassgate.engines.llvm_cpu.simd.translate import translate
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from glassgate.system import SYSTEM
from tests.engines.llvm_cpu import amx_interpreter as interpreter
from tests.engines.llvm_cpu.test_bfloat16 import TILES, precision_settings

SAPPHIRE_RAPIDS = (
    "sapphirerapids",
    "+amx-tile,+amx-bf16,+avx512bf16,+avx512f,+avx512bw,+avx512vl,+avx512dq,+fma,+avx2",
)


@cache
def _instruction(name, operands):
    """Return the machine code that interprets an instruction."""
    text = f"def run(address):\n    f({', '.join(f'words(address)[{k}]' for k in range(operands))})\n"
    names = {"f": interpreter.FUNCTIONS[name], "words": words}
    return compiling.load(compiling.compile_module(translate(text, "run", names)), "run")


class Registers:
    """The register state of a kernel. Its methods are the instructions, which the interpreter runs."""

    def __init__(self):
        self.state = np.zeros(interpreter.AT + interpreter.SIZE, np.uint8)

    def __getattr__(self, name):
        def run(*numbers):
            job = array("q", [self.state.ctypes.data, *numbers])
            _instruction(name, len(job))(job.buffer_info()[0])

        return run

    def configure(self, **sizes):
        """Set the rows and the bytes per row of registers, e.g. `_0=(16, 64)`. Return the registers."""
        configuration = np.zeros(64, np.uint8)
        configuration[0] = 1
        for name, (rows, width) in sizes.items():
            configuration[16 + 2 * int(name[1:])], configuration[48 + int(name[1:])] = width, rows
        self.ldtilecfg(configuration.ctypes.data)
        return self


def rounded(numbers):
    """Round numbers to bfloat16. Return their bits, and their values in float32."""
    nearest = torch.tensor(numbers).bfloat16()
    return nearest.view(torch.int16).numpy().astype(np.uint16), nearest.float().numpy()


def test_product_of_registers_equals_that_of_numpy():
    rows, pairs, columns = 5, 3, 7
    generator = np.random.default_rng(0)
    left, a = rounded(generator.standard_normal((rows, 2 * pairs), np.float32))
    right, b = rounded(generator.standard_normal((pairs, 2 * columns), np.float32))
    sums = np.full((16, 16), np.nan, np.float32)
    sums[:rows, :columns] = before = generator.standard_normal((rows, columns), np.float32)
    registers = Registers().configure(_0=(rows, 4 * columns), _4=(rows, 4 * pairs), _6=(pairs, 4 * columns))
    registers.tileloadd(sums.ctypes.data, 64, 0)
    registers.tileloadd(left.ctypes.data, 4 * pairs, 4)
    registers.tileloadd(right.ctypes.data, 4 * columns, 6)
    registers.tdpbf16ps(0, 4, 6)
    registers.tilestored(sums.ctypes.data, 64, 0)
    b = b.reshape(pairs, columns, 2).transpose(0, 2, 1).reshape(2 * pairs, columns)
    np.testing.assert_allclose(sums[:rows, :columns], before + a.astype(np.float64) @ b, rtol=0, atol=1e-5)
    assert np.isnan(sums[rows:]).all()
    assert np.isnan(sums[:, columns:]).all()


@pytest.mark.parametrize(
    ("left", "right", "before", "after"),
    [
        ([1.0, 1.0], [2.0**-127, 2.0**-133], 0.0, 0.0),  # denormal numbers are zero
        ([1.0, 1.0], [3.0, 4.0], 2.0**-130, 7.0),
        ([2.0**-63, 0.0], [2.0**-64, 0.0], 0.0, 0.0),  # denormal results are zero, too
        (
            [2.0**12, 2.0**12],
            [2.0**12, -(2.0**12)],
            1.0,
            1.0,
        ),  # the two products are added first, then the previous sum
        ([2.0**12, 1.0], [2.0**12, 1.0], 0.0, 2.0**24),  # ties are rounded to even
        ([2.0**12, 1.0], [2.0**12, 3.0], 0.0, 2.0**24 + 4),
        ([float("inf"), 0.0], [1.0, 1.0], 0.0, float("inf")),
        ([float("nan"), 0.0], [1.0, 1.0], 0.0, float("nan")),
    ],
)
def test_the_arithmetic_follows_the_manual(left, right, before, after):
    registers = Registers().configure(_0=(1, 4), _4=(1, 4), _6=(1, 4))
    total, at = np.array([before], np.float32), []
    for pair in (left, right):
        bits = (np.array(pair, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        at.append(bits)
    for number, values in ((0, total), (4, at[0]), (6, at[1])):
        registers.tileloadd(values.ctypes.data, 4, number)
    registers.tdpbf16ps(0, 4, 6)
    registers.tilestored(total.ctypes.data, 4, 0)
    np.testing.assert_equal(total[0], np.float32(after))


WRONG = {
    "before ldtilecfg": lambda registers: registers.tilezero(0),
    "after tilerelease": lambda registers: (registers.configure(_0=(1, 4)).tilerelease(), registers.tilezero(0)),
    "sizes do not fit": lambda registers: registers.configure(_0=(1, 4), _4=(2, 4), _6=(1, 4)).tdpbf16ps(0, 4, 6),
    "sizes that no tile": lambda registers: registers.configure(_0=(17, 64)),
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_instructions_end_the_process_with_a_message(message):
    registers = Registers()
    registers.configure(_0=(1, 4), _4=(1, 4), _6=(1, 4)).tdpbf16ps(0, 4, 6)
    registers.tilezero(0)
    registers.tilerelease()
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only runs machine code and ends
        child = os.fork()
    if child == 0:
        os.dup2(write_end, 2)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        WRONG[message](registers)
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as stderr:
        assert message in stderr.read().decode()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGABRT


def disassembled(path):
    """Return the bytes and the text of each instruction of an object file."""
    listing = subprocess.run(["objdump", "-d", "-w", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s*[0-9a-f]+:\s+((?:[0-9a-f]{2} )+)\s*(.*?)\s*$", listing, re.MULTILINE)


@cache
def _machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_default_triple().create_target_machine(cpu="sapphirerapids")


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("objdump")), reason="there is no gcc or no objdump")
def test_instructions_have_the_same_encoding_as_with_gcc(tmp_path):
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64, INT64]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    address, pitch = function.args
    instructions, text = TileInstructions(builder, address), []
    instructions.configure(address)
    for number in range(8):
        instructions.zero(number)
        instructions.load(number, address, pitch)
        instructions.store(number, address, pitch)
        text.append(f"_tile_zero({number}); _tile_loadd({number}, p, s); _tile_stored({number}, p, s);")
    for sums, left, right in ((s, 4 + k % 2, 6 + k // 2) for s in range(4) for k in range(4)):
        instructions.dot(sums, left, right)
        text.append(f"_tile_dpbf16ps({sums}, {left}, {right});")
    instructions.release()
    builder.ret_void()
    (tmp_path / "ours.o").write_bytes(_machine().emit_object(llvm.parse_assembly(str(module))))
    whole = f"void f(void *p, long s) {{ _tile_loadconfig(p); {' '.join(text)} _tile_release(); }}"
    (tmp_path / "theirs.c").write_text(f"#include <immintrin.h>\n{whole}\n")
    gcc = ["gcc", "-O1", "-mamx-tile", "-mamx-bf16", "-c", "theirs.c"]
    subprocess.run(gcc, cwd=tmp_path, check=True)
    ours, theirs = (disassembled(tmp_path / name) for name in ("ours.o", "theirs.o"))
    assert [t for t in theirs if "endbr" not in t[1]] == ours
    assert len(ours) == 1 + 3 * 8 + 16 + 1 + 1


@pytest.mark.matrix
def test_kernels_for_amx_configure_and_release_the_registers_once(tmp_path):
    """The kernels of training and inference are compiled for a processor with AMX and do not run."""
    code = f"from tests.engines.llvm_cpu.test_tiles import write_object_files; write_object_files({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path.cwd())
    instructions_by_kernel = {
        path.stem: [text.split()[0] for _, text in disassembled(path)] for path in tmp_path.glob("*.o")
    }
    assert {"forward", "backward", "multiply_4", "multiply_1", "outer"} <= instructions_by_kernel.keys()
    for name, instructions in instructions_by_kernel.items():
        multiplies = name in ("forward", "backward", "outer") or name.startswith("multiply")
        assert (instructions.count("ldtilecfg"), instructions.count("tilerelease")) == (multiplies, multiplies)
        assert ("tdpbf16ps" in instructions) == multiplies
        # For the gradients of biases, gradients are also summed without tile registers, two rows at once.
        assert ("vdpbf16ps" in instructions) == (name == "outer")


@pytest.mark.matrix
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.skipif(bool(llvm.get_host_cpu_features().get("amx-tile")), reason="this processor has AMX")
def test_machine_code_runs_with_trapped_and_emulated_instructions(tmp_path):
    """The processor rejects the instructions of AMX. `trap.c` handles the signal and executes them from their bytes."""
    trap = tmp_path / "trap.so"
    gcc = ["gcc", "-O2", "-shared", "-fPIC", Path(__file__).with_name("trap.c"), "-o", trap, "-lm"]
    subprocess.run(gcc, check=True)
    features = llvm.get_host_cpu_features().flatten() + ",+amx-tile,+amx-bf16"
    code = f"from tests.engines.llvm_cpu.test_tiles import trapped; trapped({str(trap)!r}, {features!r})"
    environment = os.environ | {"GLASSGATE_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=Path.cwd())


def trapped(library, features):
    """Check that the trial succeeds, and that a trained layer has bit for bit the results of the interpreter."""
    compiling.target_machine = partial(compiling.target_machine, "", features)
    trap = ctypes.CDLL(library)
    trap.install.restype = ctypes.POINTER(ctypes.c_long)
    instruction_counts = trap.install()
    by_processor, counts = [], []
    for processor in (amx.with_amx(TILES), TILES):
        by_processor.append(trained_results(processor))
        counts.append(instruction_counts[:6])
    assert all(map(torch.equal, *by_processor))
    assert min(counts[0]) > 0
    assert counts[0] == counts[1], "the interpreter uses none of the instructions"


def trained_results(processor):
    """Return the outputs and gradients of a layer on this processor, with one and with three products in bfloat16."""
    import glassgate as gg

    torch.manual_seed(0)
    layer, x, results = gg.LSTM(70, 100, bidirectional=True), torch.randn(6, 33, 70), []
    with pretend(processor), gg.engine("cpu"):
        assert trial.find_wrong_products() == []
        for setting in (torch.autocast("cpu", torch.bfloat16), precision_settings("high")):
            with setting:
                output, _ = layer(x)
                results += [output, *torch.autograd.grad(output.float().square().sum(), list(layer.parameters()))]
    return results


def test_tile_registers_of_this_processor_give_the_results_of_the_interpreter():
    if (reason := amx.obstacle()) is not None:
        pytest.skip(reason)
    assert all(map(torch.equal, trained_results(amx.with_amx(TILES)), trained_results(TILES)))


def write_object_files(folder):
    """Write the kernels of a training step as object files. The kernels do not run."""
    import glassgate as gg

    class Idle(compiling.Function):
        def __init__(self, address, name):
            super().__init__(address, name)
            self.run = lambda arguments: None

    def compile_and_write(text, name, bits, processor, _compile=compiling._compile):
        compiled = _compile(text, name, bits, processor)
        Path(folder, f"{name}.o").write_bytes(compiled.content)
        return compiled

    compiling.target_machine = partial(compiling.target_machine, *SAPPHIRE_RAPIDS)
    compiling._compile, compiling.read = compile_and_write, lambda path: None
    compiling.write = lambda path, code: None
    compiling.Function = Idle
    with pretend(amx.with_amx(Processor(64, 32, "avx512bf16"))), torch.autocast("cpu", torch.bfloat16):
        output, _ = gg.LSTM(64, 96)(torch.randn(7, 40, 64, requires_grad=True))
        output.backward(torch.zeros_like(output))


def test_few_rows_do_not_use_tile_registers():
    assert [TILES.of_rows(rows).tiles for rows in (1, 2, 3)] == ["", "", interpreter.INTERPRETED]


def test_kernels_are_cached_separately_for_each_multiplication_method():
    assert len({path_of("text", "name", 32, p) for p in (TILES, amx.with_amx(TILES), TILES.of_rows(1))}) == 3


def test_the_trial_detects_wrong_products(monkeypatch):
    with pretend(TILES):
        assert trial.find_wrong_products() == []
        monkeypatch.setattr(trial, "TOLERANCE", 0.0)
        assert len(trial.find_wrong_products()) == 3


REFUSED = "tests.engines.llvm_cpu.refused"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with AMX, whose operating system permits it. Its value is the monkeypatch."""
    monkeypatch.setenv("GLASSGATE_CACHE", str(tmp_path))
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: llvm.FeatureMap({"amx-tile": True, "amx-bf16": True}))
    monkeypatch.setattr(SYSTEM, "permit_tile_registers", lambda: True)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    amx.obstacle.cache_clear()
    yield monkeypatch
    amx.obstacle.cache_clear()


def test_an_illegal_instruction_ends_only_the_trial(machine):
    machine.setattr(amx, "TRIAL", REFUSED)
    assert amx.obstacle() == "a trial of it was ended by SIGILL"
    with pretend(Processor(64, 32, "avx512bf16")):
        assert amx.processor_for(Arithmetic.BFLOAT16) == host()
        assert amx.describe_method() == "by AVX512-BF16; not by AMX-BF16: a trial of it was ended by SIGILL"
    machine.setattr(amx, "run_trial", lambda: pytest.fail("the cached result is not used"))
    amx.obstacle.cache_clear()
    assert amx.obstacle() == "a trial of it was ended by SIGILL"


@pytest.mark.parametrize(
    ("fault", "is_permanent"), [("", True), ("a trial of it failed: product of weights: error 0.1", True), ("?", False)]
)
def test_permanent_results_of_the_trial_are_cached(machine, fault, is_permanent):
    count = []
    machine.setattr(amx, "run_trial", lambda: (count.append(1), (fault, is_permanent))[1])
    for _ in range(2):
        amx.obstacle.cache_clear()
        assert amx.obstacle() == (fault or None)
    assert len(count) == (1 if is_permanent else 2)
    with pretend(Processor(64, 32, "avx512bf16")):
        assert amx.processor_for(Arithmetic.BFLOAT16).tiles == ("" if fault else "amx")
        assert amx.processor_for(Arithmetic.FULL).tiles == ""


def test_reasons_why_amx_is_not_used(machine):
    machine.setattr(amx, "run_trial", lambda: ("", True))
    for value, used in (("AVX512_CORE_BF16", False), ("avx2", False), ("AVX512_CORE_AMX", True), ("default", True)):
        machine.setenv("ONEDNN_MAX_CPU_ISA", value)
        amx.obstacle.cache_clear()
        assert amx.obstacle() == (None if used else f"ONEDNN_MAX_CPU_ISA is {value}")
    machine.setattr(SYSTEM, "permit_tile_registers", lambda: False)
    amx.obstacle.cache_clear()
    assert amx.obstacle() == "the operating system does not permit its registers in this process"
    machine.setattr(llvm, "get_host_cpu_features", lambda: llvm.FeatureMap({}))
    amx.obstacle.cache_clear()
    assert amx.obstacle() == "this processor does not have it"
