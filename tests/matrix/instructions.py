"""`python -m tests.matrix.instructions` counts the instructions of calls on ARM, in QEMU: ours and those of torch.nn.

An instruction of an emulated processor has no duration, so these numbers do not replace a measurement.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from tests.matrix.build import command_of
from tests.matrix.environments import ENVIRONMENTS

CALLS = [("LSTM", 128, 8, 20), ("LSTM", 128, 32, 10), ("LSTM", 128, 1, 20), ("GRU", 128, 8, 20)]
"""The layer, H, N and L of each call. The input has H features."""
COUNT = """
import os, torch
import glassgate as gg
torch.set_num_threads(1)
for kind, H, N, L in CALLS:
    for home in (gg, torch.nn):
        layer, x = getattr(home, kind)(H, H), torch.randn(L, N, H)
        def infer():
            with torch.no_grad():
                layer(x)
        def train():
            layer.zero_grad()
            layer(x)[0].sum().backward()
        for call in (infer, train):
            for _ in range(4):
                call()
            os.getppid()
            call()
            os.getppid()
"""


def main() -> None:
    """Print the instructions of each call in millions, and the ratio to those of torch.nn."""
    command = command_of(next(each for each in ENVIRONMENTS if each.machine == "aarch64"))
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder, "instructions.so")
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", plugin], check=True)
        at = command.index("qemu-aarch64-static")
        command[at : at + 1] = ["qemu-aarch64", "-plugin", str(plugin)]  # the static program loads no plugins
        code = COUNT.replace("CALLS", repr(CALLS))
        done = subprocess.run([*command, "-c", code], stderr=subprocess.PIPE, text=True, check=True)
    counts = iter([int(n) for n in re.findall(r"instructions: (\d+)", done.stderr)][1::2])
    for kind, H, N, L in CALLS:
        ours, theirs = [(next(counts), next(counts)) for _ in range(2)]
        for name, a, b in zip(("inference", "training"), ours, theirs, strict=True):
            print(f"{kind}, H = {H}, N = {N}, L = {L}, {name}: {a / 1e6:.1f} vs. {b / 1e6:.1f} million: {a / b:.2f}")


if __name__ == "__main__":
    main()
