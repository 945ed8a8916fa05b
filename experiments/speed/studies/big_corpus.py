"""`python -m benchmarks big_corpus` measures training on a corpus that is larger than memory.

It writes a file in the format of the task, and trains on it twice for some steps, each time in a separate process. It
prints times, the loss and the peak memory of each process. The file and all files derived from it are deleted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

_TRAIN = """
import json, resource, signal, sys, time
from glassgate.tasks import task_class
from glassgate.tasks.progress import Interrupted, Progress

class StopAfterSteps(Progress):
    remaining, begun, units = int(sys.argv[4]), 0.0, 0
    def begin(self, units, done):
        self.begun = time.monotonic()
    def step(self, units, loss):
        self.remaining -= 1
        self.units += units
        self.loss = loss
        if not self.remaining:
            signal.raise_signal(signal.SIGINT)

kind, progress, start = task_class(sys.argv[1]), StopAfterSteps(), time.monotonic()
try:
    kind(kind.options_type(data=sys.argv[2])).fit(run=sys.argv[3], progress=progress)
except Interrupted:
    pass
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({
    "seconds until the first step": round(progress.begun - start, 1),
    "units per second": round(progress.units / (time.monotonic() - progress.begun)),
    "last loss in nats": round(progress.loss, 3),
    "peak resident memory in GB": round(peak / 1e9, 2),
}))
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument(
        "--task", choices=_WRITERS, default="language-model", help="the task to train (default: language-model)"
    )
    parser.add_argument("--gigabytes", type=float, default=5.0, help="size of the file in GB (default: 5)")
    parser.add_argument("--steps", type=int, default=300, help="steps of each training run (default: 300)")
    parser.add_argument(
        "--folder", help="folder with space for twice the size of the file (default: the system's temporary folder)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the corpus, train on it twice, and print the times, losses and memory."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        name, lines = _WRITERS[arguments.task]
        data = Path(folder) / name
        _write(data, int(arguments.gigabytes * 1e9), lines)
        print(f"{name}: {data.stat().st_size / 1e9:.2f} GB")
        for ordinal in ("first", "second"):
            command = [sys.executable, "-c", _TRAIN, arguments.task, data, Path(folder) / ordinal, str(arguments.steps)]
            environment = os.environ | {"GLASSGATE_CACHE": str(Path(folder) / "cache"), "OMP_WAIT_POLICY": "PASSIVE"}
            completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            print(f"{ordinal} training: " + ", ".join(f"{n} {v}" for n, v in json.loads(completed.stdout).items()))


def _text(words: list[str], ends: list[int]) -> Iterator[str]:
    """Yield sentences."""
    return (" ".join(words[start:stop]) + ".\n" for start, stop in pairwise(ends))


def _table(words: list[str], ends: list[int]) -> Iterator[str]:
    """Yield CSV rows with a text and its label. The label depends on the length of the first word."""
    return (f"{' '.join(words[start:stop])},{len(words[start]) % 3}\n" for start, stop in pairwise(ends))


def _tagged(words: list[str], ends: list[int]) -> Iterator[str]:
    """Yield sentences with one word and its tag per line. The tag depends on the length of the word."""
    return ("".join(f"{word}\tT{len(word)}\n" for word in words[start:stop]) + "\n" for start, stop in pairwise(ends))


_WRITERS = {
    "language-model": ("text.txt", _text),
    "classification": ("texts.csv", _table),
    "tagging": ("tagged.tsv", _tagged),
}


def _write(path: Path, size: int, lines: Callable[[list[str], list[int]], Iterator[str]]) -> None:
    """Write sequences of 4 to 20 artificial words. Frequent words are short. Each sequence is written ten times."""
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(random.choice(letters, 1 + min(9, k // 400))) for k in range(4000)]
    with path.open("w", encoding="ascii") as file:
        file.write("text,label\n" if path.suffix == ".csv" else "")
        while file.tell() < size:
            chosen = [words[k] for k in np.minimum(random.zipf(1.3, 2_000_000), len(words)) - 1]
            ends = np.cumsum(random.integers(4, 21, len(chosen) // 21)).tolist()
            block = "".join(lines(chosen, ends))
            for _ in range(10):
                file.write(block)
