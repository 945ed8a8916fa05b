"""`python -m benchmarks.short`: from how many bytes of weights a row of a short call is torch's, measured here.

The two numbers belong into `glassgate/layers/short.py`.
"""

import math
from itertools import product

from benchmarks.measure import Bench
from benchmarks.rows import FEW, Row, stock, works
from benchmarks.turns import Budget
from glassgate import cells

BUDGET = Budget(0.2, most_rounds=7, turn=0.01, patience=1)
CANDIDATES = tuple(50_000 * k for k in range(1, 41))


def main() -> None:
    """Measures our kernels against torch.nn on one thread, and prints for each cell what suits these points best."""
    with Bench(1, BUDGET) as bench:
        for cell in ("GRU", "RNN"):
            found = []
            for do, H, N, L in product(("inference", "training"), (64, 128, 256, 512), (1, 8), FEW):
                (point,) = stock(works([(L, N, H)], do=do, cell=cell))
                row = Row("short", "", "nn." + cell, (point,))
                ratio = bench.measure(row, point)["figure"]
                found.append((8 * len(getattr(cells, cell).gates) * H * H, L * N, ratio))
                print(f"{cell} {do:10} L={L:<3} N={N} H={H:<4} torch's time over ours {ratio:.2f}", flush=True)
            mean, bytes_a_row = max((_mean(found, candidate), candidate) for candidate in CANDIDATES)
            print(f"{cell}: {bytes_a_row:,} bytes a row, {mean:.2f} times torch.nn's speed in the geometric mean")


def _mean(found: list[tuple[int, int, float]], bytes_a_row: int) -> float:
    """The geometric mean of the ratios, one where the call would be torch's."""
    logs = [0.0 if rows <= size // bytes_a_row else math.log(ratio) for size, rows, ratio in found]
    return math.exp(sum(logs) / len(logs))


if __name__ == "__main__":
    main()
