"""`python -m tests.clients` measures programs with both libraries, interleaved, for the table of docs/clients.md."""

import logging
import platform
import re
import sys
import time
from importlib import metadata
from pathlib import Path

import torch
from torch import nn

import glassgate as gg
from tests.clients.programs import PROGRAMS, Program, trained

PAGE = Path(__file__).parents[2] / "docs/clients.md"
TABLE = re.compile(r"(<!-- table, written by make clients -->\n).*?(<!-- end of the table -->)", re.DOTALL)
PACKAGES = ("stable-baselines3", "sb3-contrib", "darts", "pytorch-forecasting", "torchrl", "captum", "torch")


def row(program: Program, rounds: int) -> str:
    """Return a row of the table: the smallest processor time of each library, and the difference of their numbers."""
    least = {nn: float("inf"), gg: float("inf")}
    for k in range(rounds + 1):  # the first round compiles and warms up
        numbers = {}
        for library in least:
            numbers[library], seconds = trained(program, library, time.process_time)
            least[library] = min(least[library], seconds) if k else least[library]
    difference = float((numbers[nn] - numbers[gg]).abs().max() / numbers[nn].abs().max())
    speedup = least[nn] / least[gg]
    cells = (program.title, program.how, f"{least[nn]:.2f}", f"{least[gg]:.2f}", f"{speedup:.2f}", f"{difference:.0e}")
    return f"| {' | '.join(cells)} |"


def processor() -> str:
    """Return the name of the processor."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return model[1] if model else platform.machine()


def main(rounds: int) -> None:
    """Measure all programs on one thread, and write the table."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    lines = [
        "| program | what changes | torch.nn, s | Glassgate, s | speedup | difference |",
        "|---|---|---|---|---|---|",
    ]
    for program in PROGRAMS:
        lines.append(row(program, rounds))
        print(lines[-1], flush=True)
    versions = ", ".join(f"{name} {metadata.version(name).partition('+')[0]}" for name in PACKAGES)
    lines += [
        "",
        f"Minimum processor time of {rounds} interleaved training runs each, on one thread of {processor()}; "
        f"{versions}.",
        "",
    ]
    text = PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda match: match[1] + "\n".join(lines) + match[2], text), "utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
