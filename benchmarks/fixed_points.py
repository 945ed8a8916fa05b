"""`python -m benchmarks.fixed_points FOLDER`: fixed points of a three-bit memory, compared with FixedPointFinder.

FOLDER is a checkout of github.com/mattgolub/fixed-point-finder (Golub and Sussillo 2018, doi:10.21105/joss.01003).
Both programs start from the same states of the same `RNN` of 24 units, in float64. FixedPointFinder minimises the speed
with Adam, with its defaults; Glassgate uses Newton's method. Each time is the shortest processor time of interleaved
runs, after a run of each that does not count.
"""

import argparse
import contextlib
import io
import sys
from typing import Any

import torch
from torch import Tensor, nn

import glassgate as gg
from docs.draw_dynamics import flip_flops, memory
from experiments.common.timing import interleaved


def theirs(folder: str, layer: gg.Recurrent, starts: Tensor, iterations: int) -> Any:
    """The fixed points that FixedPointFinder finds from these starts."""
    sys.path.insert(0, folder)
    from FixedPointFinderTorch import FixedPointFinderTorch as FixedPointFinder  # type: ignore[import-not-found]

    stock = nn.RNN(3, layer.hidden_size, batch_first=True).double()
    stock.load_state_dict(layer.state_dict())
    finder = FixedPointFinder(stock, dtype="float64", max_iters=iterations, verbose=False, super_verbose=False)
    with contextlib.redirect_stdout(io.StringIO()):
        unique, _ = finder.find_fixed_points(starts.numpy().copy(), torch.zeros(1, 3).double().numpy())
    return unique


def main() -> None:
    """Train the memory, search with both programs, and print the points and the times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fixed_points", description="Compares fixed points.")
    parser.add_argument("folder", help="a checkout of fixed-point-finder")
    parser.add_argument("--starts", type=int, default=1024, help="number of starts (1024)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (5)")
    parser.add_argument("--iterations", type=int, default=5000, help="iterations of FixedPointFinder (5000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    layer = memory()[0].double()
    states = gg.dynamics.trajectory(layer, flip_flops(40, 64)[0].double()).states[1:].flatten(0, 1)
    first, second = (torch.randperm(len(states))[: options.starts] for _ in range(2))
    starts = (states[first] + states[second]) / 2
    searches = (
        lambda: gg.dynamics.fixed_points(layer, torch.zeros(3), starts),
        lambda: theirs(options.folder, layer, starts, options.iterations),
    )
    ours, other = (search() for search in searches)
    seconds, their_seconds = map(min, interleaved(searches, options.rounds))
    points, q = torch.from_numpy(other.xstar), torch.from_numpy(other.qstar)
    found = points[q < 1e-12]
    distance = torch.cdist(found, ours.states)
    common = distance[distance.amin(1) < 1e-3].amin(1)
    print(f"Glassgate:        {len(ours)} points, largest q {ours.speeds.max():.0e}, {seconds:.2f} s")
    print(f"FixedPointFinder: {len(found)} points, largest q {q[q < 1e-12].max():.0e}, {their_seconds:.2f} s")
    print(f"{len(common)} points in common, at most {common.max():.0e} apart")
    print(f"speedup: {their_seconds / seconds:.1f}")


if __name__ == "__main__":
    main()
