"""`python -m benchmarks gpu` measures the GPU engine on this machine, and writes JSON and the page docs/gpu-speed.md.

Each part is a table of the page, and each case is a row of a table. All parts run in order of importance. Names select
parts: `python -m benchmarks gpu plain options`. No case starts after the first ten minutes of a part. Each result is
stored at once. The next run continues with missing cases, and then repeats the cases that failed. With `--quick`, each
call uses a tiny layer and runs once. This also works in Triton's interpreter, without a GPU.
"""

import json
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

import torch

import glassgate as gg
from benchmarks.gpu_parts import PARTS, Bench, Figures
from experiments.common.environment import ROOT
from glassgate.engines.triton_gpu.backend import INSTALLED, is_interpreted
from glassgate.tasks.runs import write_json

LIMIT = 600.0
"""The time limit of a part in one run, in seconds."""


def main(path: Path, quick: bool = False, parts: Sequence[str] = ()) -> None:
    """Measure the cases that are not in the file yet. Without `quick`, also write the page.

    Args:
        path: the JSON file.
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
    results: Figures = json.loads(path.read_text()) if path.exists() else {}
    if results.setdefault("chip", chip()) != chip():
        raise SystemExit(
            f"benchmarks gpu: {path} has figures of {results['chip']}, this is {chip()}; name another --out"
        )
    results["versions"] = {"torch": torch.__version__, "triton": triton_version(), "glassgate": gg.__version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    bench = Bench(quick)
    try:
        for name in parts or PARTS:
            run_part(name, bench, results.setdefault(name, []), partial(write_json, path, results))
    finally:
        if not quick:
            (ROOT / "docs" / "gpu-speed.md").write_text(page(results))


def run_part(name: str, bench: Bench, rows: list[Figures], store: Callable[[], object]) -> None:
    """Measure the cases of a part that have no row, then those that failed in an earlier run.

    Args:
        name: the part.
        bench: measures the calls.
        rows: the rows of the part, which are changed. A failed case has the row `{"case": ..., "error": ...}`.
        store: a function that writes all rows to the file.
    """
    start, row_of = time.monotonic(), {row["case"]: row for row in rows}
    cases = [case for case in PARTS[name](bench) if "error" in row_of.get(case.name, {"error": ""})]
    for case in sorted(cases, key=lambda case: case.name in row_of):
        if time.monotonic() - start > LIMIT:
            print(f"{name}: ten minutes are over; the next run continues with {case.name}", flush=True)
            return
        if (row := row_of.get(case.name)) is None:
            rows.append(row := {"case": case.name})
        try:
            figures = case.measure()
        except Exception as error:  # an error in one case must not stop the others
            traceback.print_exc()
            figures = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
        row.pop("error", None)
        row |= figures
        print(f"{name}: {row}", flush=True)
        store()
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


def page(results: Figures) -> str:
    """The page with a table for each part."""
    text = f"# Speed on a GPU\n\nMeasured on one {results['chip']}, PyTorch {results['versions']['torch']}, by "
    text += "`python -m benchmarks gpu`. Times of layers are medians in milliseconds: forward / forward and backward. "
    text += "*other* is cuDNN, or torch's `scan` in the table that compares with it.\n"
    for name, part in PARTS.items():
        rows = results.get(name, [])
        if not rows:
            continue
        columns = [*dict.fromkeys(key for row in rows for key in row)]
        text += f"\n{cleandoc(part.__doc__ or '')}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
        text += "".join(f"| {' | '.join(format_value(row.get(key)) for key in columns)} |\n" for row in rows)
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
