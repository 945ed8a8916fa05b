"""Compiles the text of a kernel to machine code, or reads the machine code from the cache."""

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import llvmlite.binding as llvm
from llvmlite import ir

from glassgate.engines.llvm_cpu.atomics import YIELD
from glassgate.engines.llvm_cpu.cache import CacheEntry, path_of, read, write
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.system import SYSTEM

KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class Function:
    """The machine code of a kernel. `run` takes the address of the kernel's arguments."""

    def __init__(self, address: int, name: str) -> None:
        self.address, self.name = address, name
        self.run: Callable[[int], None] = KERNEL_TYPE(address)

    def __call__(self, arguments: int) -> None:
        self.run(arguments)


_engines: list[llvm.ExecutionEngine] = []
"""The LLVM objects that own the loaded machine code. The code is freed with its owner, so all owners are kept."""


@cache
def compile_kernel(text: str, name: str, bits: int, processor: Processor) -> Function:
    """Compile the text of a kernel, or read its machine code from the cache."""
    path = path_of(text, name, bits, processor)
    entry = read(path)
    if entry is None:
        with _without_garbage_collection():
            entry = _compile(text, name, bits, processor)
        write(path, entry)
    return load(entry, name)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which would take a part of the compile time and free almost nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _compile(text: str, name: str, bits: int, processor: Processor) -> CacheEntry:
    from glassgate.engines.llvm_cpu.namespace import namespace_for
    from glassgate.engines.llvm_cpu.simd.translate import translate

    if processor.tiles and "microkernel" in text:
        # The operating system switches threads faster if their tile registers are empty.
        text += "    _release_registers()\n"
    # Without optimisation, LLVM keeps no tiles in registers.
    optimised = processor.optimised or bool(processor.tiles)
    return compile_module(translate(text, name, namespace_for(text, bits, processor)), optimised)


def compile_module(module: ir.Module, optimised: bool = True) -> CacheEntry:
    """Compile an LLVM module for this processor. The module has one public function with the same name.

    Args:
        module: the module.
        optimised: see `Processor.optimised`.
    """
    target = target_machine() if optimised else target_machine(level=0)
    # The loader stores the addresses of external functions after the data. Without data it has no memory for addresses.
    ir.GlobalVariable(module, ir.IntType(64), f"{module.name}.data").linkage = "common"
    module.globals[f"{module.name}.data"].initializer = ir.IntType(64)(0)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3 if optimised else 0)
    options.loop_vectorization = options.slp_vectorization = True
    passes = llvm.create_pass_builder(target, options)
    manager = passes.getModulePassManager()
    if not optimised:
        manager.add_sroa_pass()  # variables are in registers, not in memory
    manager.run(parsed, passes)
    _check_functions(parsed)
    return CacheEntry(module.name, target.emit_object(parsed))


@cache
def _find_functions_of_process() -> None:
    """Let LLVM search the libraries of this process for functions, which it does from its first engine on."""
    _engines.append(llvm.create_mcjit_compiler(llvm.parse_assembly(""), loader_machine()))


def _check_functions(module: llvm.ModuleRef) -> None:
    """Raise an error if the C library lacks a function of a kernel. Loading the kernel would end the process."""
    _find_functions_of_process()
    called = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    if missing := [name for name in called if not llvm.address_of_symbol(name)]:
        raise RuntimeError(
            f"kernel {module.name}: expected the functions {', '.join(called)} in the C library of this system, which "
            f'lacks {", ".join(missing)}; run this layer inside `with glassgate.engine("reference")`'
        )


@cache
def target_machine(name: str = "", features: str = "", level: int = 3) -> llvm.TargetMachine:
    """Return the target of the compiler: a processor, by default this one, with the code model of the operating system.

    Args:
        name: LLVM's name for the processor.
        features: the instruction sets of the processor, e.g. "+avx2,+fma".
        level: the level of optimisation, 0 to 3.
    """
    loader_machine()
    name, features = name or llvm.get_host_cpu_name(), features or llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(name, features, opt=level, reloc="pic", codemodel=SYSTEM.code_model)


@cache
def loader_machine() -> llvm.TargetMachine:
    """Return the target of the loader: this processor, with LLVM's defaults."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.add_symbol(YIELD, SYSTEM.yield_function())
    return llvm.Target.from_default_triple().create_target_machine()


def load(entry: CacheEntry, name: str) -> Function:
    """Load a kernel on a thread that Ctrl-C cannot interrupt, because LLVM aborts if it deletes half-loaded code."""
    if threading.current_thread() is not threading.main_thread():
        return _load(entry, name)
    with ThreadPoolExecutor(1) as executor:  # Python raises KeyboardInterrupt in the main thread only
        return executor.submit(_load, entry, name).result()


def _load(entry: CacheEntry, name: str) -> Function:
    # llvmlite's own memory manager places constants next to the code.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), loader_machine(), use_lmm=True)
    engine.add_object_file(llvm.ObjectFileRef.from_data(entry.content))
    engine.finalize_object()
    _engines.append(engine)
    return Function(engine.get_function_address(entry.name), name)
