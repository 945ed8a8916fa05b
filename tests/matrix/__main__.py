"""`python -m tests.matrix [NAME ...]` tests environments, and writes their results into the table of docs/engines.md.

Without names, it tests all of `environments.py`, one after the other. With `--quick`, it runs only a part of the
essential tests.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.matrix.build import ROOT, NotAvailable, command_of
from tests.matrix.environments import ENVIRONMENTS, Environment

PAGE = ROOT / "docs/engines.md"
TABLE = re.compile(r"(<!-- table, written by make matrix -->\n).*?(<!-- end of the table -->)", re.DOTALL)
HEAD = [
    "| Python | torch | numpy | llvmlite | system | tests | result | date, commit |",
    "|---|---|---|---|---|---|---|---|",
]
PROBE = """
import importlib.metadata as m, json, platform, torch
versions = {name: m.version(name) for name in ("numpy", "llvmlite")}
print(json.dumps([platform.python_version(), torch.__version__.partition("+")[0], *versions.values(),
    f"{platform.system()} {platform.machine()}"]))
"""
QUICK = ("tests/layers/test_against_torch.py", "tests/test_functional.py")
"""The tests with the option `--quick`."""
EQUALS = "tests/engines/test_engines.py::test_engine_equals_the_reference"
ON_ARM = (
    *[f"{EQUALS}[cpu-{dtype}-{cell}]" for cell in ("LSTM", "GRU", "RNN") for dtype in ("float32", "float64")],
    f"{EQUALS}[cpu-bfloat16-LSTM]",
    "tests/engines/llvm_cpu/test_threads.py::test_all_jobs_run",
    "tests/layers/test_stream.py::test_a_stream_equals_the_layer[lstm-auto]",
    "tests/sessions/test_session.py::test_a_session_equals_its_layer_in_every_form_of_call[gru]",
    "tests/sessions/test_session.py::test_a_saved_session_gives_the_same_bits",
    "tests/sessions/test_int8.py::test_a_step_multiplies_rounded_rows",
    "tests/sessions/test_int8.py::test_results_of_every_cell_are_near_those_in_float32[lstm]",
    "tests/export/test_c.py::test_every_network[gcc]",
    "tests/tasks/tagging/test_tagging.py::test_it_learns[lstm]",
)
"""The tests on ARM: kernels, threads, streams, sessions, integers, C and a task. QEMU is some 20 times slower."""
POSIX_COMMANDS = ("of_the_readme_run", "for_chinese_text_run")
"""The ends of the names of tests that Windows skips."""
TIME_LIMIT = 3600
"""The time limit of the tests of one environment in seconds."""


def row_of(environment: Environment, quick: bool) -> str:
    """Build an environment, test it, and return a row of the table."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    end = [f"{datetime.date.today()}, {commit}"]
    try:
        python = command_of(environment)
        probe = subprocess.run(
            [*python, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, check=True, env=variables
        )
    except NotAvailable as reason:
        return _row(
            environment.python, environment.torch, "", "", environment.machine, "", f"not built: {reason}", *end
        )
    versions = json.loads(probe.stdout)
    title, arguments = tests_of(environment, quick)
    command = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", *arguments]
    start = time.monotonic()
    try:
        options = {"env": variables, "capture_output": True, "text": True, "timeout": TIME_LIMIT}
        done = subprocess.run(command, cwd=ROOT, check=False, **options)
        output = done.stdout
    except subprocess.TimeoutExpired:
        output = f"not finished after {TIME_LIMIT} s"
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / f"build/{environment.name}.log").write_text(output, "utf-8")
    last = output.strip().splitlines()[-1] if output.strip() else done.stderr.strip()[-200:]
    if environment.simulated:
        versions[-1] = f"{environment.simulated}, simulated"
    counts = ", ".join(re.findall(r"\d+ (?:passed|failed|errors?|skipped)", last)) or last
    return _row(*versions, title, f"{counts} in {(time.monotonic() - start) / 60:.0f} min", *end)


def tests_of(environment: Environment, quick: bool) -> tuple[str, list[str]]:
    """The tests of an environment: their name, and the arguments of pytest."""
    if environment.machine == "aarch64":
        return "kernels, threads, sessions, C, a task", [*ON_ARM]
    if quick:
        return "layers and functions against torch.nn", [*QUICK]
    plugin = ["-p", "tests.simulated_system"] if environment.simulated else []
    if environment.simulated == "windows":  # its shells differ, and its file names are not ASCII
        plugin += [f"--deselect=tests/test_house.py::test_the_commands_{name}" for name in POSIX_COMMANDS]
    return "essential", [*plugin, "-n", "2", "-m", "essential", "tests"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main(names: list[str]) -> None:
    """Test the environments with these names, or all. Rows of other environments stay in the table."""
    quick = "--quick" in names
    names = [name for name in names if name != "--quick"]
    chosen = [e for e in ENVIRONMENTS if not names or e.name in names]
    if unknown := set(names) - {e.name for e in chosen}:
        sys.exit(f"no environment is called {', '.join(unknown)}; there are {', '.join(e.name for e in ENVIRONMENTS)}")
    for environment in chosen:
        print(f"{environment.name} ...", flush=True)
        row = row_of(environment, quick)
        print(row, flush=True)
        write(environment, row, PAGE)


def write(environment: Environment, row: str, page: Path) -> None:
    """Replace the row of an environment in the table of a page."""
    text = page.read_text("utf-8")
    found = TABLE.search(text)
    assert found is not None, page
    marked = [line for line in found[0].splitlines() if line.startswith("| ") and "<!--" in line]
    rows = {line.rpartition("<!-- ")[2].removesuffix(" -->"): line for line in marked}
    rows[environment.name] = f"{row}<!-- {environment.name} -->"
    lines = [*HEAD, *[rows[e.name] for e in ENVIRONMENTS if e.name in rows]]
    page.write_text(TABLE.sub(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], text), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
