"""Builds the environments of `make matrix` in build/matrix, from Debian's packages and PyPI.

The libraries of CUDA are replaced by those of `cuda_stubs.py`. An environment takes 2 to 4 GB.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.matrix.cuda_stubs import add
from tests.matrix.environments import Environment

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("GLASSGATE_MATRIX", ROOT / "build/matrix"))
"""The folder of the environments."""
EXTRAS = "all"
TEST_PACKAGES = ("pytest", "pytest-xdist", "hypothesis", "setuptools")
DEBIAN_PACKAGES = "python3,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates,git"
ARM_WHEELS = [f"--platform=manylinux_{v}_aarch64" for v in ("2_28", "2_27", "2_17")] + [
    "--platform=manylinux2014_aarch64"
]


class NotAvailable(Exception):
    """An environment cannot be built on this machine; the message has the reason."""


def command_of(environment: Environment) -> list[str]:
    """Build an environment unless it exists. Return the command that runs its Python in the repository's folder."""
    folder = FOLDER / environment.folder
    if environment.machine == "aarch64":
        return _arm(environment, folder)
    if environment.debian:
        return _in_debian(environment, folder)
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        run([_python(environment.python), "-m", "venv", "--clear", folder])
        _install(environment, [str(python)], folder / f"lib/python{environment.python}/site-packages", folder)
    if environment.simulated:
        # Text is ASCII by default. The code pages of Windows have more characters.
        locale = ["PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0", "LC_ALL=C"] if environment.simulated == "windows" else []
        return ["env", f"GLASSGATE_SIMULATE={environment.simulated}", *locale, str(python)]
    return [str(python)]


def run(command: Sequence[object], **options: object) -> None:
    """Run a command. Raise NotAvailable with the end of its output if it fails."""
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    except FileNotFoundError as error:
        raise NotAvailable(f"{command[0]} is not installed") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "?").splitlines()[-1]
        raise NotAvailable(f"`{' '.join(map(str, command[:6]))} ...` failed: {last}")


def _install(environment: Environment, python: list[str], packages: Path, folder: Path) -> None:
    """Install torch without CUDA, then everything else. The settings of this machine must not limit the versions."""
    pip = [*python, "-m", "pip", "install", "--quiet", "--no-compile"]
    variables = os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": f"{FOLDER / 'wheels'} /wheels"}
    run([*pip, "--no-deps", f"torch=={environment.torch}"], env=variables)
    _without_cuda(packages)
    run([*pip, f".[{EXTRAS}]", *TEST_PACKAGES, *environment.others], env=variables, cwd=ROOT)
    # The tests run in a checkout, with the command of the package.
    run([*pip, "--no-deps", "--editable", "."], env=variables, cwd=ROOT)
    (folder / "complete").touch()


def _without_cuda(packages: Path) -> None:
    """Replace the libraries of CUDA, and remove NVIDIA's packages and Triton from the requirements of torch."""
    add(packages / "torch/lib")
    metadata = next(packages.glob("torch-*.dist-info")) / "METADATA"
    text = metadata.read_text("utf-8")
    metadata.write_text(re.sub(r"^Requires-Dist: (nvidia|cuda|triton).*\n", "", text, flags=re.MULTILINE), "utf-8")


def _python(version: str) -> str:
    """The interpreter with this version on this machine."""
    candidates = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    if sys.version.startswith(f"{version}."):
        candidates.insert(0, sys.executable)
    for candidate in filter(None, candidates):
        return str(candidate)
    raise NotAvailable(f"this machine has no Python {version}")


def _in_debian(environment: Environment, folder: Path) -> list[str]:
    """An environment in a folder with a Debian system. Only root can enter such a folder."""
    root = FOLDER / environment.debian
    if not (root / "usr/bin/python3").exists():
        run(["debootstrap", "--variant=minbase", f"--include={DEBIAN_PACKAGES}", environment.debian, root])
    if not (root / "proc/self").exists():
        run(["mount", "--bind", "/proc", root / "proc"])
        run(["mount", "--rbind", "/dev", root / "dev"])
    checkout = root / "work"
    checkout.mkdir(exist_ok=True)
    run(["bash", "-c", f"git archive HEAD | tar -x -C '{checkout}' && cp -r .git '{checkout}'"], cwd=ROOT)
    enter = ["chroot", str(root), "sh", "-c", 'cd /work && exec "$@"', "sh"]
    inside = f"/opt/{environment.folder}"
    python = [*enter, f"{inside}/bin/python"]
    if not (root / inside[1:] / "complete").exists():
        for file in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):  # the network settings of this machine
            shutil.copy(Path("/", file), root / file)
        run([*enter, "python3", "-m", "venv", "--clear", inside])
        packages = root / inside[1:] / f"lib/python{environment.python}/site-packages"
        if not packages.is_dir():
            raise NotAvailable(f"Debian {environment.debian} has another version of Python than {environment.python}")
        if (wheels := FOLDER / "wheels").is_dir():
            (root / "wheels").mkdir(exist_ok=True)
            for wheel in wheels.glob(f"torch-{environment.torch}-cp{environment.python.replace('.', '')}-*"):
                if not (root / "wheels" / wheel.name).exists():
                    os.link(wheel, root / "wheels" / wheel.name)
        _install(environment, python, packages, root / inside[1:])
    return python


def _arm(environment: Environment, folder: Path) -> list[str]:
    """A Debian system for ARM without its second stage, and wheels for ARM. `qemu-aarch64-static` runs its Python."""
    root, site = folder / "root", folder / "site"
    emulator = ["qemu-aarch64-static", "-L", str(root), "-cpu", "max"]
    if not (folder / "complete").exists():
        include = "--include=python3,libgomp1,libstdc++6"
        run(["debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", include, environment.debian, root])
        for package in (root / "var/cache/apt/archives").glob("*.deb"):
            run(["dpkg-deb", "-x", package, root])
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:", "--target"]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        needed = [*project["dependencies"], *project["optional-dependencies"]["tasks"], "pytest", "hypothesis"]
        platforms = ["--platform=any", *ARM_WHEELS, f"--python-version={environment.python}"]
        wheels = f"--find-links={FOLDER / 'wheels'}"
        run([*pip, site, *platforms, wheels, f"torch=={environment.torch}", *needed])
        run([*pip, folder / "zig", "ziglang"])
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin/gcc").write_text(COMPILER.format(zig=folder / "zig/ziglang/zig", emulator=" ".join(emulator)))
        (folder / "bin/gcc").chmod(0o755)
        (folder / "complete").touch()
    variables = [f"PYTHONHOME={root}/usr", f"PYTHONPATH={site}:{ROOT}", f"PATH={folder}/bin:{os.environ['PATH']}"]
    variables += [f"PYTHONPYCACHEPREFIX={folder}/bytecode", f"XDG_CACHE_HOME={folder}/cache"]
    return ["env", *variables, *emulator, str(root / f"usr/bin/python{environment.python}")]


COMPILER = """#!/bin/sh
# Compiles for ARM. The program that it writes is a script that runs in QEMU.
for argument; do
    shift
    case $argument in -march=native) ;; *) set -- "$@" "$argument" ;; esac
    [ "$before" = -o ] && program=$argument
    before=$argument
done
{zig} cc -target aarch64-linux-gnu "$@" || exit
mv "$program" "$program.arm"
printf '#!/bin/sh\\nexec {emulator} "$0.arm"\\n' > "$program"
chmod +x "$program"
"""
