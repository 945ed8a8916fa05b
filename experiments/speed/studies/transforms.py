"""`python -m benchmarks transforms` compares function transforms with plain training steps.

The transforms are per-sample gradients, gradients of gradients, jvp and ensembles. All run on the CPU kernels,
interleaved in one process on one thread. Times are processor times, on which other processes have less influence than
on elapsed times.
"""

import argparse
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap

import glassgate as gg
from experiments.common.summaries import ratios
from experiments.common.timing import interleaved, processor_seconds

MEMBERS = 4
"""The number of models of an ensemble."""
SHAPES = ((100, 32, 32, 64), (40, 24, 40, 80), (100, 32, 128, 128), (50, 64, 64, 256), (20, 8, 32, 32))
"""The sizes L, N, H_in and H."""


class Transform(NamedTuple):
    """A transform and the plain call that it is compared with.

    Attributes:
        run: calls the transform.
        plain: the plain call.
        calls: the number of plain calls whose time is compared with one call of the transform.
    """

    run: Callable[[], Any]
    plain: Callable[[], Any]
    calls: int = 1


class Problem:
    """A layer with an input and a loss.

    Args:
        kind: the class of the layer, which is called with the sizes of input and state.
        L, N, D, H: the sizes.
    """

    def __init__(self, kind: Callable[[int, int], gg.Recurrent], L: int, N: int, D: int, H: int) -> None:
        torch.manual_seed(0)
        self.layer = kind(D, H)
        self.parameters = list(self.layer.parameters())
        self.values = {name: v.detach() for name, v in self.layer.named_parameters()}
        self.directions = {name: torch.randn_like(v) for name, v in self.values.items()}
        self.members = {name: torch.stack([v] * MEMBERS) for name, v in self.values.items()}
        self.x, self.weight = torch.randn(L, N, D), torch.randn(L, 1, H)

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Compute a scalar loss from the output of all steps."""
        output, _ = functional_call(self.layer, dict(parameters), (x,))
        return (output * self.weight).sum()

    def step(self) -> Any:
        """Compute the forward and backward pass of a plain training step."""
        output, _ = self.layer(self.x)
        return torch.autograd.grad((output * self.weight).sum(), self.parameters)

    def per_sample(self) -> Any:
        """Compute the gradients of each sequence."""
        return vmap(grad(lambda w, row: self.loss(w, row.unsqueeze(1))), (None, 1))(self.values, self.x)

    def gradient_of_gradient(self) -> Any:
        """Compute the gradient of the squared norm of the gradient."""
        output, _ = self.layer(self.x)
        first = torch.autograd.grad((output * self.weight).sum(), self.parameters, create_graph=True)
        return torch.autograd.grad(torch.stack([d.square().sum() for d in first]).sum(), self.parameters)

    def penalty(self) -> Any:
        """Compute the gradient of a gradient penalty, the squared norm of the gradient of the input."""
        x = self.x.detach().requires_grad_()
        output, _ = self.layer(x)
        (first,) = torch.autograd.grad((output * self.weight).sum(), [x], create_graph=True)
        return torch.autograd.grad(first.square().sum(), self.parameters)

    def jvp(self) -> Any:
        """Compute the directional derivative of the output with respect to the parameters."""
        with torch.no_grad():
            return jvp(lambda w: functional_call(self.layer, w, (self.x,))[0], (self.values,), (self.directions,))

    def ensemble(self) -> Any:
        """Compute the gradients of several models at once."""
        return vmap(grad(self.loss), (0, None))(self.members, self.x)

    def transforms(self) -> dict[str, Transform]:
        """All transforms by name."""
        return {
            "per-sample gradients": Transform(self.per_sample, self.step),
            "gradient of a gradient": Transform(self.gradient_of_gradient, self.step),
            "gradient penalty": Transform(self.penalty, self.step),
            "jvp": Transform(self.jvp, self.step),
            f"ensemble of {MEMBERS}": Transform(self.ensemble, self.step, MEMBERS),
        }


def measure(transform: Transform, rounds: int, repeats: int) -> tuple[float, float]:
    """Return the time of a transform relative to plain calls, and the seconds of one plain call (medians)."""
    transform.run(), transform.plain()
    seconds, plain_seconds = interleaved([transform.run, transform.plain], rounds, repeats)
    return median(ratios(seconds, plain_seconds)) / transform.calls, median(plain_seconds)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("--layers", nargs="+", default=["LSTM", "GRU"], help="layers of gg (default: LSTM GRU)")
    parser.add_argument("--only", default="", help="only transforms whose name contains this")
    parser.add_argument(
        "--rounds", type=int, default=15, help="interleaved rounds; the median is printed (default: 15)"
    )


def run(options: argparse.Namespace) -> None:
    """Print one line for each layer, shape and transform."""
    torch.set_num_threads(1)
    for name in options.layers:
        for shape in SHAPES:
            problem = Problem(getattr(gg, name), *shape)
            repeats = max(1, round(0.02 / processor_seconds(problem.step, 3)))
            for title, transform in problem.transforms().items():
                if options.only in title:
                    ratio, plain_seconds = measure(transform, options.rounds, repeats)
                    print(f"{name} {shape} {title}: {ratio:.2f}x of {plain_seconds * 1e3:.2f} ms", flush=True)
