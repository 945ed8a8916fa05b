"""The text of a kernel to machine code: Numba and LLVM compile it once, a file keeps it."""

import ctypes
import linecache
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from glassgate.engines.numba_cpu.processor import Processor

Function = Any
"""A C function of one address."""


@cache
def compiled(text: str, name: str, bits: int, processor: Processor) -> Function:
    """The kernel of that text."""
    machine_code, symbol = _translate(text, name, bits, processor)
    return _load(machine_code, symbol)


def _translate(text: str, name: str, bits: int, processor: Processor) -> tuple[bytes, str]:
    from numba import njit, types

    from glassgate.engines.numba_cpu import language

    path = f"<glassgate {name}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    namespace = language.names(text, bits, processor)
    exec(compile(text, path, "exec"), namespace)
    options = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    kernel = njit(types.void(types.int64), **options)(namespace[name])
    (result,) = kernel.overloads.values()
    module = llvm.parse_assembly(result.library.get_llvm_str())
    return _machine().emit_object(module), result.fndesc.llvm_func_name


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
    )


_engines: list[llvm.ExecutionEngine] = []


def _load(machine_code: bytes, symbol: str) -> Function:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    _engines.append(engine)
    raw = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        engine.get_function_address(symbol)
    )
    return raw
