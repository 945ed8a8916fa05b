"""Machine code on disk, so that only the first process that needs a kernel compiles it.

If machine code cannot be stored, each process compiles its kernels.
"""

import hashlib
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm

from glassgate.storage import UntrustedError, cache_folder, check_trusted, read_trusted
from glassgate.user_warning import warn_user


class CacheEntry(NamedTuple):
    """The content of a file in the cache: an object file with one function, or the result of trying AMX instructions.

    Attributes:
        name: the name of the function or of the trial.
        content: the object file, or the error of the trial; empty if the trial succeeded.
    """

    name: str
    content: bytes


def path_of(text: str, *properties: object) -> Path:
    """Return the path of the cache file for a text, its properties, the installed compiler and this processor."""
    parts = [text, *map(str, properties), *_toolchain()]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return cache_folder() / f"{digest[:32]}.kernel"


@cache
def _toolchain() -> tuple[str, str, str]:
    """Return a digest of llvmlite's version and of the modules that compile, and the processor's name and features."""
    digest = hashlib.sha256(version("llvmlite").encode())
    here = Path(__file__).parent
    translators = [here / f"{name}.py" for name in ("compile", "namespace", "runtime", "atomics")]
    for source in (*translators, *sorted(here.glob("simd/*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def read(path: Path) -> CacheEntry | None:
    """Return the entry in a file; None if the file is missing or incomplete, or if other users may have written it."""
    try:
        digest, name, content = read_trusted(path).split(b"\n", 2)
    except UntrustedError:
        _warn(path.parent)
        return None
    except (OSError, ValueError):
        return None
    if hashlib.sha256(name + content).hexdigest().encode() != digest:
        return None
    return CacheEntry(name.decode(), content)


@cache
def _warn(folder: Path) -> None:
    warn_user(
        f"kernels are compiled again in every process, because other users can write to {folder} and could replace "
        f"them there; run `chmod -R go-w {folder}`, or set GLASSGATE_CACHE to a folder of your own",
        RuntimeWarning,
    )


def write(path: Path, entry: CacheEntry) -> None:
    """Write an entry atomically, so that other processes see a complete file or no file.

    Nothing is written to a folder that other users can write to.
    """
    name = entry.name.encode()
    digest = hashlib.sha256(name + entry.content).hexdigest().encode()
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_trusted(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".kernel-", delete=False) as file:
            unfinished = Path(file.name)
            file.write(b"\n".join([digest, name, entry.content]))
        unfinished.replace(path)
    except UntrustedError:
        _warn(path.parent)
    except OSError:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
