"""Everything that depends on the operating system. `SYSTEM` is the implementation for the current one."""

import sys

from glassgate.system.portable import System

if sys.platform == "linux":
    from glassgate.system.linux import Linux as Current
elif sys.platform == "darwin":
    from glassgate.system.macos import MacOS as Current
elif sys.platform == "win32":
    from glassgate.system.windows import Windows as Current
else:
    from glassgate.system.portable import System as Current

SYSTEM: System = Current()

__all__ = ["SYSTEM", "System"]
