"""The environments of `make matrix`: versions of Python, torch and other packages, and how each is built."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Environment:
    """A Python with packages.

    Attributes:
        python: the version of Python, for example "3.13".
        torch: the version of torch.
        others: further packages with a fixed version.
        debian: the release of Debian that provides this Python; empty for a Python of this machine.
        machine: the processor. QEMU emulates "aarch64".
        simulated: the system that `tests/simulated_system.py` simulates; empty for none.
    """

    python: str
    torch: str
    others: tuple[str, ...] = field(default=())
    debian: str = ""
    machine: Literal["x86_64", "aarch64"] = "x86_64"
    simulated: Literal["", "windows", "macos"] = ""

    @property
    def folder(self) -> str:
        """The name of the folder with the packages, for example "python3.13-torch2.13.0"."""
        others = "".join(f"-{package.replace('==', '')}" for package in self.others)
        processor = "" if self.machine == "x86_64" else f"-{self.machine}"
        return f"python{self.python}-torch{self.torch}{others}{processor}"

    @property
    def name(self) -> str:
        """The name on the command line, for example "python3.12-torch2.13.0-windows"."""
        return self.folder + (f"-{self.simulated}" if self.simulated else "")


OLDEST = ("numpy==1.26.4", "llvmlite==0.45.0", "pandas==2.2.2", "pyarrow==18.0.0")
"""The oldest versions that pyproject.toml allows. Newer ones of pyarrow need a newer NumPy."""

ENVIRONMENTS = [
    Environment("3.11", "2.9.1"),
    Environment("3.11", "2.9.1", OLDEST),
    Environment("3.11", "2.11.0"),
    Environment("3.12", "2.13.0"),
    Environment("3.13", "2.13.0", debian="trixie"),
    Environment("3.14", "2.13.0", debian="sid"),
    Environment("3.11", "2.14.1"),
    Environment("3.11", "2.15.0"),
    Environment("3.11", "2.9.1", debian="bookworm", machine="aarch64"),
    Environment("3.12", "2.13.0", simulated="windows"),
    Environment("3.12", "2.13.0", simulated="macos"),
]
