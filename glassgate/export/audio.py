"""Reads and writes models of audio effects in the JSON formats of Neural Amp Modeler (`.nam`) and RTNeural."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassgate import cells
from glassgate.export.c_stages import flatten
from glassgate.export.errors import ExportError
from glassgate.export.files import atomic_write
from glassgate.export.network import DirectionSpec, levels_of
from glassgate.layers.drop_in import GRU, LSTM
from glassgate.layers.stack import Recurrent

_NAM_VERSION = "0.7.0"
"""The version of the written file format."""
_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid}
_LAYERS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}
_RTNEURAL_GATES = {"lstm": ("i", "f", "g", "o"), "gru": ("z", "r", "n")}
"""The order of the gates in RTNeural's weights, by glassgate's names."""


class Effect(nn.Sequential):
    """A sequence of modules that maps samples (N, L, H_in) to samples (N, L, H_out).

    Recurrent layers pass on only their output, not their final states.

    Attributes:
        sample_rate: the sample rate of the audio in Hz; None if it is unknown.
    """

    sample_rate: float | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Map samples (N, L, H_in) to samples (N, L, H_out)."""
        for module in self:
            result = module(input)
            input = result[0] if isinstance(result, tuple) else result
        return input


def from_nam(path: str | os.PathLike[str]) -> Effect:
    """Reads an LSTM model of Neural Amp Modeler.

    Args:
        path: the path of a `.nam` file.

    Returns:
        an LSTM with the initial states of the file, followed by a linear layer, in eval mode.

    Raises:
        ExportError: the file cannot be read, is damaged, or contains another architecture.

    Example:
        >>> import tempfile, glassgate as gg
        >>> model = nn.Sequential(gg.LSTM(1, 8), nn.Linear(8, 1))
        >>> gg.from_nam(gg.to_nam(model, f"{tempfile.mkdtemp()}/amp.nam"))
        Effect(
          (0): LSTM(1, 8, batch_first=True, learn_initial_state=True)
          (1): Linear(in_features=8, out_features=1, bias=True)
        )
    """
    content = _read(path, "from_nam")
    if content.get("architecture") != "LSTM":
        raise ExportError(f"from_nam: {path} must have the architecture 'LSTM', got {content.get('architecture')!r}")
    try:
        config = content["config"]
        layer = LSTM(
            config["input_size"], config["hidden_size"], config["num_layers"], batch_first=True,
            learn_initial_state=True,
        )  # fmt: skip
        head, weights = nn.Linear(layer.output_size, 1), torch.tensor(content["weights"], dtype=torch.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"from_nam: {path} is damaged ({type(error).__name__}: {error}); copy it again") from error
    parts: list[Tensor] = []
    with torch.no_grad():
        for k, (_, params) in enumerate(layer.weights()):
            parts += [torch.cat([params["weight_ih"], params["weight_hh"]], 1), params["bias_ih"]]
            parts += [layer.get_parameter(f"{state}_0_l{k}") for state in ("h", "c")]
        parts += [head.weight, head.bias]
        sizes = [part.numel() for part in parts]
        if sum(sizes) != weights.numel():
            raise ExportError(f"from_nam: {path} must have {sum(sizes)} weights for its sizes, got {weights.numel()}")
        for part, values in zip(parts, weights.split(sizes), strict=True):
            part.copy_(values.view_as(part))
        for k, (_, params) in enumerate(layer.weights()):
            params["weight_ih"].copy_(parts[4 * k][:, : params["weight_ih"].shape[1]])
            params["weight_hh"].copy_(parts[4 * k][:, params["weight_ih"].shape[1] :])
            params["bias_hh"].zero_()
    model = Effect(layer, head).eval()
    model.sample_rate = content.get("sample_rate")
    return model


def to_nam(module: nn.Module, path: str | os.PathLike[str], *, sample_rate: float = 48_000) -> Path:
    """Writes an LSTM and a linear layer with one output as a `.nam` file for Neural Amp Modeler.

    Args:
        module: an `nn.Sequential` of a `gg.LSTM` (any depth, one direction) and an `nn.Linear(H, 1)`, both with biases.
        path: the path of the file; by convention it ends in `.nam`.
        sample_rate: the sample rate of the training audio, in Hz.

    Returns:
        the path.

    Raises:
        ExportError: the module has another structure, or the file cannot be written.
    """
    match flatten(module):
        case [Recurrent() as layer, nn.Linear(out_features=1, bias=Tensor()) as head] if _is_plain(layer, cells.LSTM):
            pass
        case others:
            raise ExportError(
                "to_nam: expected a Sequential of a gg.LSTM in one direction with biases and an nn.Linear with one "
                f"output, got {', '.join(map(repr, others))}"
            )
    values = [value for spec in _specs(layer, "to_nam") for value in _nam_values(spec)]
    numbers = torch.cat([value.reshape(-1) for value in [*values, head.weight, head.bias]])
    content = {
        "version": _NAM_VERSION,
        "metadata": {},
        "architecture": "LSTM",
        "config": {
            "input_size": layer.input_size, "hidden_size": layer.hidden_size, "num_layers": layer.num_layers
        },
        "weights": numbers.tolist(),
        "sample_rate": sample_rate,
    }  # fmt: skip
    return _write(path, content, "to_nam")


def _nam_values(spec: DirectionSpec) -> Iterator[Tensor]:
    weights = spec.weights
    yield torch.cat([weights["weight_ih"], weights["weight_hh"]], 1)
    yield weights["bias_ih"] + weights["bias_hh"]
    yield from spec.initial.values()


def from_rtneural(path: str | os.PathLike[str]) -> Effect:
    """Reads a model of RTNeural with LSTM, GRU and dense layers and the activations tanh, ReLU and sigmoid.

    Args:
        path: the path of a JSON file.

    Returns:
        the modules, in eval mode.

    Raises:
        ExportError: the file cannot be read, is damaged, or contains another kind of layer or activation.

    Example:
        >>> import tempfile, glassgate as gg
        >>> model = nn.Sequential(gg.GRU(1, 8), nn.Linear(8, 1), nn.Tanh())
        >>> gg.from_rtneural(gg.to_rtneural(model, f"{tempfile.mkdtemp()}/model.json"))
        Effect(
          (0): GRU(1, 8, batch_first=True)
          (1): Linear(in_features=8, out_features=1, bias=True)
          (2): Tanh()
        )
    """
    content = _read(path, "from_rtneural")
    try:
        width = int(content["in_shape"][-1])
        modules: list[nn.Module] = []
        for entry in content["layers"]:
            kind, activation = entry["type"], entry.get("activation") or ""
            if kind in _LAYERS:
                modules.append(_recurrent(kind, width, entry))
            elif kind in ("dense", "time-distributed-dense"):
                modules.append(_dense(width, entry))
            elif kind != "activation":
                supported = ", ".join((*_LAYERS, "dense", "activation"))
                raise ExportError(f"from_rtneural: {path} has a layer of type {kind!r}; supported are {supported}")
            width = int(entry["shape"][-1])
            if activation and kind not in _LAYERS:
                if activation not in _ACTIVATIONS:
                    supported = ", ".join(_ACTIVATIONS)
                    raise ExportError(
                        f"from_rtneural: {path} has the activation {activation!r}; supported are {supported}"
                    )
                modules.append(_ACTIVATIONS[activation]())
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, ExportError):
            raise
        raise ExportError(
            f"from_rtneural: {path} is not a model of RTNeural, or is damaged ({type(error).__name__}: {error})"
        ) from error
    return Effect(*modules).eval()


@torch.no_grad()
def _recurrent(kind: str, width: int, entry: dict[str, Any]) -> Recurrent:
    kernel, recurrent, bias = (torch.tensor(values, dtype=torch.float32) for values in entry["weights"])
    layer = _LAYERS[kind](width, int(entry["shape"][-1]), batch_first=True)
    ((cell, weights),) = layer.weights()
    biases = bias if kind == "gru" else [bias, torch.zeros_like(bias)]
    for name, values in zip(weights, (kernel.t(), recurrent.t(), *biases), strict=True):
        weights[name].copy_(_reorder(values, _RTNEURAL_GATES[kind], cell.gates))
    return layer


@torch.no_grad()
def _dense(width: int, entry: dict[str, Any]) -> nn.Linear:
    weight, *bias = (torch.tensor(values, dtype=torch.float32) for values in entry["weights"])
    linear = nn.Linear(width, int(entry["shape"][-1]), bias=bool(bias))
    linear.weight.copy_(weight.t())
    if bias:
        linear.bias.copy_(bias[0])
    return linear


def to_rtneural(module: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Writes a model in the JSON format of RTNeural.

    Args:
        module: an `nn.Linear`, a `gg.LSTM` or `gg.GRU` (one direction, with biases, zero initial states), or an
            `nn.Sequential` of these and activations (tanh, ReLU, sigmoid).
        path: the path of the file.

    Returns:
        the path.

    Raises:
        ExportError: RTNeural has no such layer, the initial states are not zero, or the file cannot be written.
    """
    names = {kind: name for name, kind in _ACTIVATIONS.items()}
    layers: list[dict[str, Any]] = []
    inputs: list[int] = []
    for part in flatten(module):
        if isinstance(part, Recurrent) and (_is_plain(part, cells.LSTM) or _is_plain(part, cells.GRU)):
            layers += [_recurrent_entry(spec) for spec in _specs(part, "to_rtneural")]
            inputs.append(part.input_size)
        elif isinstance(part, nn.Linear):
            weights = [part.weight.t()] if part.bias is None else [part.weight.t(), part.bias]
            layers.append(_entry("dense", "", part.out_features, weights))
            inputs.append(part.in_features)
        elif type(part) in names and layers:
            layers.append(_entry("activation", names[type(part)], layers[-1]["shape"][-1], []))
        else:
            raise ExportError(
                "to_rtneural: expected a gg.LSTM or gg.GRU in one direction with biases and without learned initial "
                f"states, Linear, {', '.join(kind.__name__ for kind in names)}, or a Sequential of these, got {part!r}"
            )
    if not layers:
        raise ExportError("to_rtneural: expected a layer, got a module without one")
    return _write(path, {"in_shape": [None, None, inputs[0]], "layers": layers}, "to_rtneural")


def _recurrent_entry(spec: DirectionSpec) -> dict[str, Any]:
    """The JSON entry of a recurrent layer. RTNeural's LSTM has one bias per gate, and its GRU has two."""
    kind = "lstm" if "c" in spec.widths else "gru"
    if any(initial.any() for initial in spec.initial.values()):
        raise ExportError(f"to_rtneural: {spec.label} must start from zero states, got learned initial states")
    ordered = {
        name: _reorder(values, [*spec.step.gates], _RTNEURAL_GATES[kind]).t() for name, values in spec.weights.items()
    }
    biases = ordered["bias_ih"], ordered["bias_hh"]
    bias = biases[0] + biases[1] if kind == "lstm" else torch.stack(biases)
    return _entry(kind, "tanh", spec.hidden_size, [ordered["weight_ih"], ordered["weight_hh"], bias])


def _entry(kind: str, activation: str, size: int, weights: Sequence[Tensor]) -> dict[str, Any]:
    values = [weight.tolist() for weight in weights]
    return {"type": kind, "activation": activation, "shape": [None, None, size], "weights": values}


def _reorder(rows: Tensor, gates: Sequence[str], order: Sequence[str]) -> Tensor:
    """Reorder blocks of rows, one per gate, from `gates` to `order`."""
    blocks = dict(zip(gates, rows.chunk(len(gates)), strict=True))
    return torch.cat([blocks[gate] for gate in order])


def _is_plain(layer: Recurrent, cell: type) -> bool:
    """Whether a layer has this cell, one direction, biases, one hidden size, no projection and no residuals."""
    is_simple = layer.num_directions == 1 and layer.bias and not layer.proj_size and not layer.residual
    return bool(type(layer.cell) is cell and is_simple and isinstance(layer.hidden_size, int))


def _specs(layer: Recurrent, operation: str) -> list[DirectionSpec]:
    """The directions of a plain layer, whose cell has one number per unit."""
    return [level.directions[0] for level in levels_of(layer, operation)]


def _read(path: str | os.PathLike[str], operation: str) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ExportError(f"{operation}: cannot read {path}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise ExportError(f"{operation}: {path} must be a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ExportError(f"{operation}: {path} must contain a JSON object, got {type(content).__name__}")
    return content


def _write(path: str | os.PathLike[str], content: dict[str, Any], operation: str) -> Path:
    with atomic_write(path, operation) as temporary:
        temporary.write_text(json.dumps(content), "utf-8")
    return Path(path)
