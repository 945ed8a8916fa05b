"""`python -m benchmarks gpu` measures the GPU engine on this machine, and writes JSON and the page docs/gpu-speed.md.

Each part is a table of the page, and each case is a row of a table. All parts run in order of importance. Names select
parts: `python -m benchmarks gpu plain options`. No case starts after the first ten minutes of a part. Each result is
stored at once. The next run continues with missing cases, and then repeats the cases that failed. With `--quick`, each
call uses a tiny layer and runs once. This also works in Triton's interpreter, without a GPU.
"""

import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import torch

import glassgate as gg
from experiments.common.environment import ROOT
from experiments.common.page import table
from experiments.common.store import Point, Store
from experiments.speed.gpu_parts import PARTS, Bench
from glassgate.engines.triton_gpu.backend import INSTALLED, is_interpreted

FILE = "gpu"
"""The name of the file in the store."""
OMITTED = ("part", "commit", "measured")
"""The properties of a point that the tables do not show."""
LIMIT = 600.0
"""The time limit of a part in one run, in seconds."""


def main(folder: Path, quick: bool = False, parts: Sequence[str] = ()) -> None:
    """Measure the cases that the file gpu.jsonl does not contain yet. Without `quick`, also write the page.

    Args:
        folder: the folder of the file.
        quick: whether layers are tiny, and calls run once.
        parts: the names of the parts to run; all if empty.

    Raises:
        SystemExit: the machine has no CUDA GPU, the file has figures of another GPU, a part does not exist, or the GPU
            cannot be used after a case failed.
    """
    if unknown := [name for name in parts if name not in PARTS]:
        raise SystemExit(f"benchmarks gpu: expected parts among {', '.join(PARTS)}, got {', '.join(unknown)}")
    if not torch.cuda.is_available() and not (quick and is_interpreted()):
        raise SystemExit(
            "benchmarks gpu: expected a CUDA GPU, found none; run this command on a machine with one, or try it here "
            "with TRITON_INTERPRET=1 and --quick"
        )
    store, bench = Store(folder), Bench(quick)
    if (measured := store.read(FILE)[0].get("chip", chip())) != chip():
        raise SystemExit(
            f"benchmarks gpu: {store.path(FILE)} has figures of {measured}, this is {chip()}; name another --out"
        )
    try:
        for name in parts or PARTS:
            run_part(name, bench, store)
    finally:
        if not quick:
            (ROOT / "docs" / "gpu-speed.md").write_text(page(*store.read(FILE)))


def run_part(name: str, bench: Bench, store: Store) -> None:
    """Measure the cases of a part that have no figures, then those that failed in an earlier run.

    Args:
        name: the part.
        bench: measures the calls.
        store: the figures. A failed case has "error" instead.
    """
    start, stored = time.monotonic(), {point["case"]: point for point in store.points(FILE, {"part": name})}
    cases = [case for case in PARTS[name](bench) if "error" in stored.get(case.name, {"error": ""})]
    versions = {"torch": torch.__version__, "triton": triton_version(), "glassgate": gg.__version__}
    for case in sorted(cases, key=lambda case: case.name in stored):
        if time.monotonic() - start > LIMIT:
            print(f"{name}: ten minutes are over; the next run continues with {case.name}", flush=True)
            return
        try:
            figures = case.measure()
        except Exception as error:  # an error in one case must not stop the others
            traceback.print_exc()
            figures = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
        store.add(FILE, {"part": name, "case": case.name}, figures, chip=chip(), versions=versions)
        print(f"{name}: {case.name}: {figures}", flush=True)
        if "error" in figures and not is_usable(bench.device):
            raise SystemExit(f"benchmarks gpu: the GPU cannot be used after {case.name}; run the command again")


def is_usable(device: str) -> bool:
    """Whether the process can still use its GPU, which is impossible after an invalid memory access."""
    try:
        return torch.ones(2, device=device).sum().item() == 2
    except RuntimeError:
        return False


def chip() -> str:
    """The name of the GPU; "Triton's interpreter" if there is none."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "Triton's interpreter"


def triton_version() -> str:
    """The version of Triton."""
    return str(import_module("triton").__version__) if INSTALLED else "none"


def page(head: Mapping[str, Any], points: Sequence[Point]) -> str:
    """The page with a table for each part."""
    text = f"# Speed on a GPU\n\nMeasured on one {head['chip']}, PyTorch {head['versions']['torch']}, by "
    text += "`python -m benchmarks gpu`. Times of layers are medians in milliseconds: forward / forward and backward. "
    text += "*other* is cuDNN, or torch's `scan` in the table that compares with it.\n"
    for name, part in PARTS.items():
        if rows := [point for point in points if point["part"] == name]:
            columns = [*dict.fromkeys(key for row in rows for key in row if key not in OMITTED)]
            cells = [[format_value(row.get(key)) for key in columns] for row in rows]
            text += f"\n{cleandoc(part.__doc__ or '')}\n\n{table(columns, cells)}"
    return text


def format_value(value: object) -> str:
    """A value as text."""
    match value:
        case None:
            return ""
        case float():
            return f"{value:.3g}"
        case list() | tuple():
            return " / ".join(map(format_value, value))
    return str(value)
