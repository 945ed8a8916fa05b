"""The text of a kernel to machine code. Numba and LLVM translate it where the cache does not have it yet."""

import ctypes
import gc
import linecache
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm

from glassgate.engines.numba_cpu.cache import MachineCode, path_of, read, write
from glassgate.engines.numba_cpu.processor import Processor

_KIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_unused = (ctypes.c_int64 * 2)()
_UNUSED = ctypes.addressof(_unused)


class Function:
    """The machine code of a kernel. `run` takes the address of its arguments."""

    def __init__(self, address: int, name: str) -> None:
        self.address, self.name = address, name
        self.run: Callable[[int], object] = partial(_KIND(address), _UNUSED, _UNUSED)

    def __call__(self, arguments: int) -> None:
        self.run(arguments)


_engines: list[llvm.ExecutionEngine] = []
"""The owners of all machine code, which is freed with its owner."""


@cache
def compiled(text: str, name: str, bits: int, processor: Processor) -> Function:
    """Compile the text of a kernel, or read its machine code from the cache."""
    path = path_of(text, name, bits, processor)
    code = read(path)
    if code is None:
        with _collecting_no_garbage():
            code = _translate(text, name, bits, processor)
        write(path, code)
    return _load(code, name)


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Garbage collection would take a sixth of the compile time and find almost nothing to free."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _translate(text: str, name: str, bits: int, processor: Processor) -> MachineCode:
    from numba import types
    from numba.core.compiler import Flags, compile_extra
    from numba.core.compiler_lock import global_compiler_lock

    from glassgate.engines.numba_cpu.namespace import names

    file = f"<glassgate {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    if processor.tiles and "microkernel" in text:
        # A thread without contents in its tile registers is quicker to be switched.
        text += "    _release_registers()\n"
    namespace = names(text, bits, processor)
    exec(compile(text, file, "exec"), namespace)
    flags: Any = Flags()
    flags.error_model = "numpy"
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    with global_compiler_lock:
        result: Any = compile_extra(*_contexts(), namespace[name], (types.int64,), types.void, flags, {})
        module = llvm.parse_bitcode(result.library.emit_bitcode())
    return MachineCode(result.fndesc.llvm_func_name, _target().emit_object(module))


@cache
def _contexts() -> tuple[Any, Any]:
    """What `njit` uses to type and translate a function, but without its machine code: `_target` emits ours."""
    from numba.core.registry import cpu_target

    target: Any = cpu_target
    return target.typing_context, target.target_context.with_aot_codegen("glassgate", cpu_name="host")


@cache
def _target() -> llvm.TargetMachine:
    """This processor, with constants at a short distance from the code.

    Numba's machine code may be at any distance: it loads the address of each constant, and spills most constants.
    """
    from numba.core import config

    named: Any = config
    name = named.CPU_NAME or llvm.get_host_cpu_name()
    features = named.CPU_FEATURES or llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(name, features, opt=3, reloc="pic", codemodel="small")


@cache
def machine() -> llvm.TargetMachine:
    """What the loader of machine code asks for."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine()


def _load(kernel: MachineCode, name: str) -> Function:
    """Load a kernel where Ctrl-C cannot interrupt it: LLVM ends the process if partly loaded code is deleted."""
    if threading.current_thread() is not threading.main_thread():
        return _loaded(kernel, name)
    with ThreadPoolExecutor(1) as elsewhere:  # Python raises KeyboardInterrupt in the main thread only
        return elsewhere.submit(_loaded, kernel, name).result()


def _loaded(kernel: MachineCode, name: str) -> Function:
    # llvmlite's own memory manager places constants next to the code.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(), use_lmm=True)
    engine.add_object_file(llvm.ObjectFileRef.from_data(kernel.code))
    engine.finalize_object()
    _engines.append(engine)
    return Function(engine.get_function_address(kernel.symbol), name)
