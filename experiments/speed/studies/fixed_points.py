"""`python -m benchmarks fixed_points FOLDER` compares the search for fixed points with FixedPointFinder.

FOLDER is a checkout of github.com/mattgolub/fixed-point-finder (Golub and Sussillo 2018, doi:10.21105/joss.01003). The
network is an `RNN` of 24 units in float64 that stores three bits. Both programs start from the same states.
FixedPointFinder minimises the speed of states with Adam, with its default settings. Glassgate uses Newton's method.
Each time is the shortest processor time of interleaved runs, after a warm-up run of each.
"""

import argparse
import contextlib
import io
import sys
from typing import Any

import torch
from torch import Tensor, nn

import glassgate as gg
from docs.draw_dynamics import flip_flops, train_memory
from experiments.common.timing import interleaved


def search_with_fixed_point_finder(folder: str, layer: gg.Recurrent, starts: Tensor, iterations: int) -> Any:
    """Return the fixed points that FixedPointFinder finds from these starts."""
    sys.path.insert(0, folder)
    from FixedPointFinderTorch import FixedPointFinderTorch as FixedPointFinder  # type: ignore[import-not-found]

    torch_layer = nn.RNN(3, layer.hidden_size, batch_first=True).double()
    torch_layer.load_state_dict(layer.state_dict())
    finder = FixedPointFinder(torch_layer, dtype="float64", max_iters=iterations, verbose=False, super_verbose=False)
    with contextlib.redirect_stdout(io.StringIO()):
        unique, _ = finder.find_fixed_points(starts.numpy().copy(), torch.zeros(1, 3).double().numpy())
    return unique


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("folder", help="a checkout of fixed-point-finder")
    parser.add_argument("--starts", type=int, default=1024, help="number of starts (default: 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--iterations", type=int, default=5000, help="iterations of FixedPointFinder (default: 5000)")


def run(options: argparse.Namespace) -> None:
    """Train the memory, search with both programs, and print the points and the times."""
    torch.set_num_threads(1)
    layer = train_memory()[0].double()
    states = gg.dynamics.trajectory(layer, flip_flops(40, 64)[0].double()).states[1:].flatten(0, 1)
    first, second = (torch.randperm(len(states))[: options.starts] for _ in range(2))
    starts = (states[first] + states[second]) / 2
    searches = (
        lambda: gg.dynamics.fixed_points(layer, torch.zeros(3), starts),
        lambda: search_with_fixed_point_finder(options.folder, layer, starts, options.iterations),
    )
    ours, theirs = searches[0](), searches[1]()
    seconds, their_seconds = map(min, interleaved(searches, options.rounds))
    points, q = torch.from_numpy(theirs.xstar), torch.from_numpy(theirs.qstar)
    found = points[q < 1e-12]
    distance = torch.cdist(found, ours.states)
    common = distance[distance.amin(1) < 1e-3].amin(1)
    print(f"Glassgate:        {len(ours)} points, largest q {ours.speeds.max():.0e}, {seconds:.2f} s")
    print(f"FixedPointFinder: {len(found)} points, largest q {q[q < 1e-12].max():.0e}, {their_seconds:.2f} s")
    print(f"{len(common)} points in common, at most {common.max():.0e} apart")
    print(f"speedup: {their_seconds / seconds:.1f}")
