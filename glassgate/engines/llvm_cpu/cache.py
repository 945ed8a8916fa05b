"""Machine code on disk, so that only the first process that needs a kernel compiles it.

A file begins with a digest of its name and content. The name is a digest of the text of the kernel and everything else
that determines its machine code. A damaged or renamed file is therefore ignored, and the kernel is compiled again. If
machine code cannot be stored, each process compiles its kernels.
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
def _toolchain() -> tuple[str, ...]:
    """Return a digest of the compiler and of the format of files, the target, and the processor's name and features."""
    digest = hashlib.sha256(version("llvmlite").encode())
    here = Path(__file__).parent
    translators = [here / f"{name}.py" for name in ("cache", "compile", "namespace", "runtime", "atomics")]
    for source in (*translators, *sorted(here.glob("simd/*.py"))):
        digest.update(source.read_bytes())
    return (
        digest.hexdigest(),
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


def read(path: Path) -> CacheEntry | None:
    """Return the entry in a file; None if the file is missing, damaged or renamed, or if others may have written it."""
    try:
        digest, name, content = read_trusted(path).split(b"\n", 2)
    except UntrustedError:
        _warn(path.parent)
        return None
    except (OSError, ValueError):
        return None
    if _digest(path, name, content) != digest:
        return None
    return CacheEntry(name.decode(), content)


def _digest(path: Path, name: bytes, content: bytes) -> bytes:
    return hashlib.sha256(b"\n".join([path.name.encode(), name, content])).hexdigest().encode()


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
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_trusted(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".kernel-", delete=False) as file:
            unfinished = Path(file.name)
            file.write(b"\n".join([_digest(path, name, entry.content), name, entry.content]))
        unfinished.replace(path)
    except UntrustedError:
        _warn(path.parent)
    except OSError:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
