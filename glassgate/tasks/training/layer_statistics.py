"""Statistics of each recurrent layer for the log: gradients, forget bias, saturation of gates, Lyapunov exponents."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

import glassgate as gg

# Saturation is measured on this many sequences of a batch, and on this many of their first steps.
_ROWS, _STEPS = 4, 16
_CLOSED, _OPEN = 0.1, 0.9  # a gate below or above these values is saturated
_WARM_UP = 0.2  # fraction of the steps without exponents, because states have not reached their attractor


class _Watched:
    """The recurrent layers of a network, and a part of the inputs that they read while `store_inputs` is open."""

    def __init__(self, network: nn.Module):
        self.layers = {name: each for name, each in network.named_modules() if isinstance(each, gg.Recurrent)}
        self._inputs: dict[str, Tensor] = {}

    @contextmanager
    def store_inputs(self) -> Iterator[None]:
        """A context in which a part of each layer's input is stored."""

        def hook(name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            assert isinstance(layer, gg.Recurrent)
            self._keep(name, *_batch_first(layer, *args[:1], **kwargs))

        hooks = [
            each.register_forward_pre_hook(partial(hook, name), with_kwargs=True) for name, each in self.layers.items()
        ]
        try:
            yield
        finally:
            for each in hooks:
                each.remove()

    def _keep(self, name: str, data: Tensor, lengths: Tensor) -> None:
        """Store a part of the input `(N, L, H_in)` of a layer. `lengths`, `(N,)`, is on the CPU."""
        raise NotImplementedError


def _batch_first(
    layer: gg.Recurrent, input: Tensor | PackedSequence, *, lengths: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    if isinstance(input, PackedSequence):
        return pad_packed_sequence(input, batch_first=True)
    data = input[None] if input.dim() == 2 else input if layer.batch_first else input.transpose(0, 1)
    full_lengths = torch.full(data.shape[:1], data.shape[1])
    return data, full_lengths if lengths is None else torch.as_tensor(lengths).cpu().view(-1)


def _label(name: str, direction: str) -> str:
    """The name of a direction of a layer in logs, such as "decoder.layer0.forward". `encoder` adds no prefix."""
    return direction if name == "encoder" else f"{name}.{direction}"


class LayerStatistics(_Watched):
    """Measures the recurrent layers of a network. Training calls it only in the steps that are logged.

    - gradient_norm: the gradient norm of each direction of a layer, before clipping
    - forget_bias: the mean over units of the bias (`bias_ih + bias_hh`) of the gate that keeps the state, times -1 if a
      lower bias keeps more. With several such gates, it is their mean
    - saturation: the fraction of these gates' values below 0.1 or above 0.9, in the first 16 steps of 4 sequences
    """

    def __init__(self, network: nn.Module):
        super().__init__(network)
        self._gates = {name: _keeping_gates(layer) for name, layer in self.layers.items()}

    def _keep(self, name: str, data: Tensor, lengths: Tensor) -> None:
        self._inputs[name] = data.detach()[:_ROWS, :_STEPS].clone()

    def gradient_norms(self) -> dict[str, float]:
        """The gradient norm of each layer and direction."""
        norms = {}
        for label, weights, *_ in self._directions():
            grads = [weight.grad for weight in weights.values() if weight.grad is not None]
            if grads:
                squares = torch.stack([grad.detach().float().square().sum() for grad in grads])
                norms[f"gradient_norm/{label}"] = float(squares.sum().sqrt())
        return norms

    @torch.no_grad()
    def values(self) -> dict[str, float]:
        """The forget biases, and the saturation for the inputs that `store_inputs` has stored."""
        statistics = {}
        for label, weights, cell, gates in self._directions():
            biases = [_bias(cell, weights, gate) for gate in gates if any(name in weights for name in gate.parameters)]
            if biases:
                statistics[f"forget_bias/{label}"] = float(torch.stack(biases).mean())
        for name, inputs in self._inputs.items():
            layer = self.layers[name]
            was_training = layer.training
            inputs = (inputs if layer.batch_first else inputs.transpose(0, 1)).to(layer.weight_ih_l0.dtype)
            with gg.engine("reference"), gg.record(layer.eval()) as tape:
                layer(inputs)
            layer.train(was_training)
            names = {gate.name for gate in self._gates[name]}
            fractions: dict[str, list[float]] = {}
            for path, values in tape.items() if names else ():
                direction, _, gate = path.rpartition(".")
                if gate in names:
                    saturation = ((values < _CLOSED) | (values > _OPEN)).float().mean()
                    fractions.setdefault(_label(name, direction), []).append(float(saturation))
            statistics |= {f"saturation/{label}": mean(values) for label, values in fractions.items()}
        self._inputs.clear()
        return statistics

    def _directions(self) -> Iterator[tuple[str, dict[str, Tensor], gg.Cell, tuple[gg.init.KeepingGate, ...]]]:
        """Yield the label, parameters by name (such as "bias_ih"), cell and keeping gates of each direction."""
        for name, layer in self.layers.items():
            for index, (cell, weights) in enumerate(layer.weights()):
                depth, direction = divmod(index, layer.num_directions)
                label = _label(name, f"layer{depth}.{('forward', 'reverse')[direction]}")
                yield label, weights, cell, self._gates[name]


def _keeping_gates(layer: gg.Recurrent) -> tuple[gg.init.KeepingGate, ...]:
    """The gates that keep a state; none if they cannot be derived."""
    size = layer.weight_ih_l0.shape[0] // len(layer.cell.gates)
    with suppress(ValueError):
        return gg.init.keeping_gates(layer.cell, size)
    return ()


def _bias(cell: gg.Cell, weights: dict[str, Tensor], gate: gg.init.KeepingGate) -> Tensor:
    """The mean over units of the numbers that parameters add to a pre-activation, positive if they keep the state."""
    index, count = cell.gates.index(gate.name), len(cell.gates)
    added = [weights[name].chunk(count)[index] for name in gate.parameters if name in weights]
    return gate.sign * torch.stack(added).sum(0).mean()


class Exponents(_Watched):
    """Measures Lyapunov exponents on the longest sequences that a network reads while `store_inputs` is open.

    `steps` is the maximum number of steps of a sequence; 0 to measure nothing.
    """

    def __init__(self, network: nn.Module, steps: int):
        super().__init__(network if steps else nn.Module())
        self.steps = steps

    def _keep(self, name: str, data: Tensor, lengths: Tensor) -> None:
        steps = min(self.steps, max(lengths.tolist(), default=0))
        if steps > len(self._inputs.get(name, ())):
            rows = (lengths >= steps).nonzero().squeeze(1)[:_ROWS]
            kept = data[rows.to(data.device), :steps].transpose(0, 1)
            self._inputs[name] = kept.detach().to("cpu", torch.float64, copy=True)

    def values(self) -> dict[str, float]:
        """The largest exponent of each layer and direction in nats per step, for the stored inputs."""
        exponents = {}
        with gg.engine("reference"):
            for name, data in self._inputs.items():
                for label, layer, inputs in gg.dynamics.separate(self.layers[name], data):
                    measured = gg.dynamics.lyapunov(layer, inputs, warm_up=int(_WARM_UP * len(inputs)))
                    exponents[f"lyapunov/{_label(name, label)}"] = float(measured.exponents[0])
        self._inputs.clear()
        return exponents
