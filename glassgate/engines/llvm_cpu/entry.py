"""Makes machine code callable as a built-in function of Python. Calling it is faster than calling through ctypes."""

import ctypes
import platform
from array import array
from collections.abc import Callable, Sequence
from functools import cache

import llvmlite.binding as llvm
from llvmlite import ir

from glassgate.engines.llvm_cpu.compile import loader_machine
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.tasks import Launch
from glassgate.engines.memory import LOW_ADDRESS, NO_MEMORY

_POINTER, _INT64 = ir.IntType(8).as_pointer(), ir.IntType(64)
_METH_O = 0x0008
_NO_MEMORY_TEXT = ctypes.c_char_p(NO_MEMORY.encode())


ENTER = '''
def enter(number, function, arguments, count, *addresses):
    """Write `number` to each of the `count` addresses, then run a function on its arguments."""
    for k in range(count):
        words(addresses[k])[0] = number
    perform(function, arguments)
'''


class Entry:
    """A launch whose calls differ only in one integer argument. Only one thread at a time may call it.

    Args:
        launch: machine code and its arguments.
        slots: the indices of the arguments that are set to this integer.

    Attributes:
        call: a function of one integer, an address. It sets the arguments at `slots` to the integer, and runs the
            launch without the GIL. It may be called only while this object exists. It raises RuntimeError for an
            address below `LOW_ADDRESS`, which tensors without memory have.
    """

    def __init__(self, launch: Launch, slots: Sequence[int]) -> None:
        start = launch.arguments.buffer_info()[0]
        arguments = array("q", [0, launch.function.address, start, len(slots), *[start + 8 * slot for slot in slots]])
        self._owner, self._launch = launch, Launch(compile_native(ENTER), arguments)
        self.call: Callable[[int], None] = self._call_by_ctypes
        if platform.python_implementation() == "CPython":
            self._code_and_arguments = array("q", [self._launch.function.address, arguments.buffer_info()[0]])
            new_builtin = ctypes.pythonapi.PyCFunction_NewEx
            new_builtin.restype = ctypes.py_object
            new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
            self.call = new_builtin(_method(), self._code_and_arguments.buffer_info()[0], None)

    def run(self, address: int) -> None:
        """Do the same as `call` for any address, more slowly. The caller has checked that it is that of memory."""
        self._launch.arguments[0] = address
        self._launch()

    def _call_by_ctypes(self, number: int) -> None:
        if number < LOW_ADDRESS:
            raise RuntimeError(NO_MEMORY)
        self.run(number)


class _Method(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


_owners: list[object] = []
"""The owner of the machine code, and the `PyMethodDef`. They are never freed, because built-in functions point to them.
"""


@cache
def _method() -> int:
    """Return the address of the `PyMethodDef` of all entries.

    The `self` of an entry is the address of two words. They contain the addresses of machine code and its arguments.
    """
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(_module())), loader_machine())
    engine.finalize_object()
    code = engine.get_function_address("entry")
    method = _Method(b"run", code, _METH_O, b"Run machine code on the memory at an address.")
    _owners.extend((engine, method))
    return ctypes.addressof(method)


def _module() -> ir.Module:
    """Return the LLVM code of `PyObject *entry(PyObject *self, PyObject *number)`."""
    module = ir.Module("glassgate.entry")
    entry = ir.Function(module, ir.FunctionType(_POINTER, [_POINTER, _POINTER]), "entry")
    builder = ir.IRBuilder(entry.append_basic_block())

    def call_python(name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        function_type = ir.FunctionType(result, [argument.type for argument in arguments])
        return builder.call(builder.inttoptr(_INT64(address), function_type.as_pointer()), arguments)

    number = call_python("PyLong_AsLongLong", _INT64, entry.args[1])
    with builder.if_then(builder.icmp_signed("<", number, _INT64(LOW_ADDRESS)), likely=False):
        error_type = builder.inttoptr(_INT64(id(RuntimeError)), _POINTER)
        text = builder.inttoptr(_INT64(ctypes.cast(_NO_MEMORY_TEXT, ctypes.c_void_p).value), _POINTER)
        call_python("PyErr_SetString", ir.VoidType(), error_type, text)
        builder.ret(_POINTER(None))
    words = builder.bitcast(call_python("PyLong_AsVoidPtr", _POINTER, entry.args[0]), _INT64.as_pointer())
    code, arguments = (builder.load(builder.gep(words, [_INT64(k)])) for k in range(2))
    builder.store(number, builder.inttoptr(arguments, _INT64.as_pointer()))
    code_type = ir.FunctionType(ir.VoidType(), [_INT64])
    thread_state = call_python("PyEval_SaveThread", _POINTER)
    builder.call(builder.inttoptr(code, code_type.as_pointer()), [arguments])
    call_python("PyEval_RestoreThread", ir.VoidType(), thread_state)
    none = builder.inttoptr(_INT64(id(None)), _POINTER)
    call_python("Py_IncRef", ir.VoidType(), none)
    builder.ret(none)
    return module
