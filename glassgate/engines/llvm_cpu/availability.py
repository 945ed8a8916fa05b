"""Whether this process can run kernels at all."""

import importlib
import struct
import sys
from functools import cache

from glassgate.engines.torch_names import mark_constant
from glassgate.system import SYSTEM


@mark_constant
def obstacle() -> str | None:
    """Why kernels cannot run in this process; None if they can."""
    return _obstacle()


@cache
def _obstacle() -> str | None:
    try:
        importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        return f"the package llvmlite cannot be imported ({error}); pip install llvmlite"
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        return "kernels need a 64-bit little-endian processor"
    if not SYSTEM.yield_function():
        return f"kernels run on Linux, macOS and Windows, and this system is {SYSTEM.name}"
    if not SYSTEM.permits_machine_code():
        return "the operating system does not permit this process to generate machine code"
    return None
