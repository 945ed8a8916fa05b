"""Machine code on disk, so that only the first run on a machine compiles. Where it cannot be kept, it is not."""

import hashlib
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm

from glassgate.storage import cache_folder, read_trusted


class MachineCode(NamedTuple):
    """An object file and the name of the function in it."""

    symbol: str
    code: bytes


def path_of(text: str, *properties: object) -> Path:
    """The file for a kernel's text, compiled by these tools for this processor."""
    parts = [text, *map(str, properties), _tools(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return cache_folder() / f"{digest[:32]}.kernel"


@cache
def _tools() -> str:
    """Numba's and LLVM's versions, and what this folder's own files say."""
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def read(path: Path) -> MachineCode | None:
    """What the file holds; None where there is none, not all of it, or one that others may have written."""
    try:
        digest, symbol, code = read_trusted(path).split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if hashlib.sha256(symbol + code).hexdigest().encode() != digest:
        return None
    return MachineCode(symbol.decode(), code)


def write(path: Path, kernel: MachineCode) -> None:
    """Keep it, at once or not at all: other processes see the whole file or none."""
    symbol = kernel.symbol.encode()
    digest = hashlib.sha256(symbol + kernel.code).hexdigest().encode()
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".kernel-", delete=False) as file:
            unfinished = Path(file.name)
            file.write(b"\n".join([digest, symbol, kernel.code]))
        unfinished.replace(path)
    except OSError:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
