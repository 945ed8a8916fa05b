"""Training on a corpus larger than memory allows: python -m benchmarks.big_corpus --gigabytes 5

Writes a text, trains a language model on it for some steps in a process of its own, twice, and prints what the process
held of memory at most. The text and what was made of it are deleted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_TRAIN = """
import json, resource, signal, sys, time
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.progress import Interrupted, Progress

class Some(Progress):
    left, begun, units = int(sys.argv[3]), 0.0, 0
    def begin(self, units, done):
        self.begun = time.monotonic()
    def step(self, units, loss):
        self.left -= 1
        self.units += units
        self.loss = loss
        if not self.left:
            signal.raise_signal(signal.SIGINT)

progress, start = Some(), time.monotonic()
try:
    LanguageModel(LanguageModelOptions(data=sys.argv[1], held_out=0.0)).fit(run=sys.argv[2], progress=progress)
except Interrupted:
    pass
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({
    "seconds until the first step": round(progress.begun - start, 1),
    "characters a second": round(progress.units / (time.monotonic() - progress.begun)),
    "last loss in nats": round(progress.loss, 3),
    "resident memory at most in GB": round(peak / 1e9, 2),
}))
"""


def main() -> None:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=5.0, help="size of the text (5)")
    parser.add_argument("--steps", type=int, default=300, help="of each training (300)")
    parser.add_argument("--folder", help="where there is room for twice as much (the system's for temporary files)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        text = Path(folder) / "text.txt"
        _write(text, int(arguments.gigabytes * 1e9))
        print(f"text: {text.stat().st_size / 1e9:.2f} GB")
        for number in ("first", "second"):
            words = [sys.executable, "-c", _TRAIN, text, Path(folder) / number, str(arguments.steps)]
            around = os.environ | {"GLASSGATE_CACHE": str(Path(folder) / "cache"), "OMP_WAIT_POLICY": "PASSIVE"}
            done = subprocess.run(words, env=around, capture_output=True, text=True, check=True)
            print(f"{number} training: " + ", ".join(f"{n} {v}" for n, v in json.loads(done.stdout).items()))


def _write(path: Path, size: int) -> None:
    """Sentences of made-up words; common ones are short."""
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(random.choice(letters, 1 + min(9, k // 400))) for k in range(4000)]
    with path.open("w", encoding="ascii") as file:
        while file.tell() < size:
            chosen = np.minimum(random.zipf(1.3, 2_000_000), len(words)) - 1
            lines = (" ".join(words[k] for k in chosen[start : start + 12]) for start in range(0, len(chosen), 12))
            block = ".\n".join(lines) + ".\n"
            for _ in range(10):
                file.write(block)


if __name__ == "__main__":
    main()
