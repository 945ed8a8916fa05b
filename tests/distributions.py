"""`make dist` builds the wheel and the source distribution without the network, and installs and uses each of them."""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from setuptools import build_meta

ROOT = Path(__file__).parents[1]
USE = """
import sys
import torch
import glassgate as gg
from glassgate.cli import main
assert gg.__file__.startswith(sys.argv[1]), gg.__file__
output, _ = gg.LSTM(3, 4)(torch.randn(5, 2, 3))
assert output.shape == (5, 2, 4)
assert main(["--version"]) == 0
assert main(["--help"]) == 0
"""


def main() -> None:
    """Build both archives, check their contents, install each into a new folder, and use the package there."""
    os.chdir(ROOT)
    tracked = subprocess.run(
        ["git", "ls-files", "glassgate"], capture_output=True, text=True, check=True
    ).stdout.split()
    wheel = ROOT / "dist" / build_meta.build_wheel("dist")
    source = ROOT / "dist" / build_meta.build_sdist("dist")
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
    with tarfile.open(source) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    for archive, names, needed in (
        (wheel, inside, tracked),
        (source, packed, [*tracked, "pyproject.toml", "README.md", "LICENSE"]),
    ):
        if missing := sorted(set(needed) - names):
            sys.exit(f"{archive.name} lacks {', '.join(missing)}")
    if others := sorted(name for name in inside if not name.startswith(("glassgate/", "glassgate-"))):
        sys.exit(f"{wheel.name} contains files from outside of the package: {', '.join(others)}")
    for archive in (wheel, source):
        with tempfile.TemporaryDirectory() as folder:
            _install(archive, folder)
            env = os.environ | {"PYTHONPATH": folder}
            subprocess.run([sys.executable, "-c", USE, folder], cwd=folder, env=env, check=True, stdout=sys.stderr)
        print(f"{archive.relative_to(ROOT)}  {archive.stat().st_size / 1024:.0f} KB, installed and used")


def _install(archive: Path, folder: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", folder, str(archive)], check=True)


if __name__ == "__main__":
    main()
