"""Kernels as object files of Windows (COFF) and macOS (Mach-O).

`python -m tests.foreign_objects mach-o` compiles all kernels of a layer for each target, and checks which functions
they call. The kernels for macOS on x86-64 also run, and with `coff` those for Windows, through functions that translate
the calling convention. Their results are compared with those of the reference engine.
"""

import ctypes
import struct
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import torch

import glassgate as gg
from glassgate.engines.llvm_cpu import compile as compiling
from glassgate.engines.llvm_cpu.processor import Processor, pretend
from glassgate.system import SYSTEM
from glassgate.system.macos import MacOS
from glassgate.system.windows import Windows

TARGETS = {
    "x86_64-pc-windows-msvc": (Windows, "haswell", Processor(32, 16)),
    "x86_64-apple-macosx": (MacOS, "haswell", Processor(32, 16)),
    "arm64-apple-macosx": (MacOS, "apple-m1", Processor(16, 32)),
}
"""The system, the model and the properties of the processor of each target."""
PERMITTED = {"glassgate_yield", "memset", "memcpy", "_fltused", "__chkstk"}
"""The functions outside of a kernel that it may use. All systems have them. Nothing reads the number `_fltused`."""


def undefined_symbols(content: bytes) -> Iterator[str]:
    """The names that an object file in the format of Windows (COFF) or macOS (Mach-O) does not define."""
    if content[:4] == b"\xcf\xfa\xed\xfe":
        yield from _undefined_in_mach_o(content)
        return
    start, count = struct.unpack_from("<II", content, 8)
    index = 0
    while index < count:
        name, value, section, _, storage, further = struct.unpack_from("<8sIhHBB", content, start + 18 * index)
        if name[:4] == b"\0" * 4:
            at = start + 18 * count + struct.unpack("<I", name[4:])[0]
            name = content[at : content.index(b"\0", at)]
        if section == 0 and value == 0 and storage == 2:
            yield name.rstrip(b"\0").decode()
        index += 1 + further


def _undefined_in_mach_o(content: bytes) -> Iterator[str]:
    at = 32
    for _ in range(struct.unpack_from("<I", content, 16)[0]):
        kind, size = struct.unpack_from("<II", content, at)
        if kind == 2:
            start, count, text_start, _ = struct.unpack_from("<4I", content, at + 8)
            for k in range(count):
                text, flags, _, _, value = struct.unpack_from("<IBBHQ", content, start + 16 * k)
                if flags & 0x0F == 1 and value == 0:
                    begin = text_start + text
                    yield content[begin : content.index(b"\0", begin)].decode().removeprefix("_")
        at += size


class _Machine:
    """Replaces the target of the compiler and of the loader."""

    def __init__(self, triple: str) -> None:
        self._triple = triple
        self._system, self._cpu, self.processor = TARGETS[triple]

    @cache  # noqa: B019, there are few machines
    def __call__(self, name: str = "", features: str = "") -> llvm.TargetMachine:
        target = llvm.Target.from_triple(self._triple)
        return target.create_target_machine(self._cpu, opt=3, reloc="pic", codemodel=self._system.code_model)


def train() -> list[torch.Tensor]:
    """The results and gradients of a layer."""
    torch.manual_seed(0)
    layer, x = gg.RNN(5, 33, bidirectional=True), torch.randn(9, 7, 5, requires_grad=True)
    output, h_n = layer(x)
    return [output, h_n, *torch.autograd.grad(output.square().sum() + h_n.sum(), [x, *layer.parameters()])]


def compile_for(machine: _Machine) -> list[tuple[str, str, int]]:
    """Compile and load all later kernels for a machine. Return the list of their texts, names and bits."""
    kernels: list[tuple[str, str, int]] = []

    def compile_here(text: str, name: str, bits: int, processor: Processor, _compile: Any = compiling._compile) -> Any:
        kernels.append((text, name, bits))
        return _compile(text, name, bits, processor)

    compiling.target_machine = compiling.loader_machine = machine
    compiling.read, compiling.write, compiling._compile = lambda path: None, lambda path, entry: None, compile_here
    return kernels


def largest_error(processor: Processor) -> float:
    """The largest difference of results of the kernels from those of the reference engine, relative to a result."""
    with pretend(processor), gg.engine("cpu"):
        results = train()
    with gg.engine("reference"):
        expected = train()
    pairs = [(a.detach(), b.detach()) for a, b in zip(results, expected, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def run_mach_o() -> list[tuple[str, str, int]]:
    """Train with kernels for macOS on x86-64, whose calling convention is that of Linux. Return the kernels."""
    machine = _Machine("x86_64-apple-macosx")
    llvm.add_symbol("_glassgate_yield", SYSTEM.yield_function())
    kernels = compile_for(machine)
    assert (error := largest_error(machine.processor)) < 1e-5, error
    return kernels


TRAMPOLINES = """
define void @kernel(i64 %arguments) {{ call win64cc void {kernel}(i64 %arguments) ret void }}
define win64cc void @yield() {{ call void {yield}() ret void }}
define win64cc ptr @memset(ptr %a, i32 %b, i64 %n) {{ %r = call ptr {memset}(ptr %a, i32 %b, i64 %n) ret ptr %r }}
define win64cc ptr @memcpy(ptr %a, ptr %b, i64 %n) {{ %r = call ptr {memcpy}(ptr %a, ptr %b, i64 %n) ret ptr %r }}
define void @__chkstk() {{ ret void }}
"""
"""Functions between the calling conventions of Linux and Windows. Stacks of Linux grow without `__chkstk`."""


def run_coff() -> None:
    """Train with kernels for Windows."""
    machine, native = _Machine("x86_64-pc-windows-msvc"), compiling.loader_machine()
    library, engines = ctypes.CDLL(None), []
    addresses = {name: ctypes.cast(library[name], ctypes.c_void_p).value for name in ("memset", "memcpy")}
    addresses |= {"yield": SYSTEM.yield_function(), "kernel": 0}

    def trampolines(**changed: int) -> Any:
        pointers = {name: f"inttoptr (i64 {address} to ptr)" for name, address in (addresses | changed).items()}
        engines.append(llvm.create_mcjit_compiler(llvm.parse_assembly(TRAMPOLINES.format(**pointers)), native))
        engines[-1].finalize_object()
        return engines[-1].get_function_address

    address_of, make = trampolines(), compiling.Function
    symbols = {name: address_of(name) for name in ("memset", "memcpy", "__chkstk")}
    for name, address in (symbols | {"glassgate_yield": address_of("yield")}).items():
        llvm.add_symbol(name, address)

    def function(address: int, name: str) -> compiling.Function:
        """A kernel. Other kernels call it at its address, and Python calls its trampoline."""
        kernel = make(address, name)
        kernel.run = compiling.KERNEL_TYPE(trampolines(kernel=address)("kernel"))
        return kernel

    compiling.Function = function
    kernels = compile_for(machine)
    assert (error := largest_error(machine.processor)) < 1e-5, error
    assert kernels


def main(run: str) -> None:
    """Run the kernels of a layer as "coff" or "mach-o". With the latter, compile them for all targets, too."""
    torch.set_num_threads(1)
    compile_kernel = compiling._compile
    compiling.loader_machine()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if run == "coff":
        run_coff()
        return
    kernels = run_mach_o()
    for triple in TARGETS:
        compiling.target_machine = machine = _Machine(triple)
        objects = [compile_kernel(*kernel, machine.processor).content for kernel in kernels]
        names = {name for content in objects for name in undefined_symbols(content)}
        assert "glassgate_yield" in names, names
        assert names <= PERMITTED, names - PERMITTED
        print(f"{triple}: {len(objects)} kernels")


if __name__ == "__main__":
    main(*sys.argv[1:])
