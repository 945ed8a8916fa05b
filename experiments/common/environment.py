"""The environment of a measurement: machine, versions, a hash of the code, commit and time."""

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from glassgate.engines.llvm_cpu.amx import describe_method
from glassgate.system import SYSTEM

ROOT = Path(__file__).parents[2]
"""The folder of the project."""

PACKAGES = ("torch", "llvmlite", "numpy", "onnxruntime", "openvino", "jax")
WITHOUT_INFLUENCE = ("tasks", "cli")
"""The packages whose code does not change the results of benchmarks."""


@cache
def environment(threads: int) -> dict[str, Any]:
    """Return the machine, the versions, and a hash of the code."""
    return {
        "processor": f"{SYSTEM.processor_name()} ({llvm.get_host_cpu_name()})",
        "processors": os.cpu_count(),
        "threads": threads,
        "bfloat16": describe_method(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "code": code(),
    }


def origin() -> dict[str, str]:
    """Return the commit and the current time."""
    return {"commit": commit(), "measured": datetime.now(UTC).isoformat(timespec="seconds")}


def commit() -> str:
    """Return the current commit, followed by "+" if the package has changes that are not committed."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + "+" if _git("status", "--porcelain", "--", "glassgate") else head


def code() -> str:
    """Return a hash of the source of the package, without `WITHOUT_INFLUENCE`."""
    digest, package = hashlib.sha256(), ROOT / "glassgate"
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in WITHOUT_INFLUENCE:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _git(*arguments: str) -> str:
    completed = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return completed.stdout.strip() if completed.returncode == 0 else "unknown"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
