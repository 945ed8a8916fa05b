"""macOS, on Intel and Apple processors."""

import sys

assert sys.platform != "win32"  # for the type checker

import subprocess
from contextlib import suppress
from pathlib import Path

from glassgate.system.portable import home_folder
from glassgate.system.posix import Posix


class MacOS(Posix):
    """macOS. Its libraries are far from the memory of kernels, so calls need LLVM's model for generated code."""

    code_model = "jitdefault"

    def processor_name(self) -> str:
        """The name that `sysctl` prints, for example "Apple M3"."""
        with suppress(OSError, subprocess.CalledProcessError):
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return super().processor_name()

    def cache_root(self) -> Path:
        """The folder in the library of the user."""
        return home_folder() / "Library" / "Caches"
