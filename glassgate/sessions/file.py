"""Session files: a safetensors file with the tensors of a session and, in its metadata, a JSON description."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassgate.cell import Cell
from glassgate.engines.symbolic.arrays.cell import ArrayCell
from glassgate.engines.symbolic.arrays.cell_text import format_cell, is_cell_text, parse_cell
from glassgate.engines.symbolic.equations import parse
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.layers.frozen import FrozenLayer
from glassgate.layers.spec import OPTIONS, Spec
from glassgate.layers.stack import Recurrent
from glassgate.storage import write_file

FORMAT = 1
"""The version of the file format."""
KEY = "glassgate_session"
"""The key of the description in the file's metadata."""
DTYPES = ("float32", "float64", "float16", "bfloat16")
"""The dtypes of the input and output of a layer."""
TORCH_LAYERS = (nn.RNN, nn.GRU, nn.LSTM)
"""The layers of `torch.nn` that sessions convert."""


class NotASession(ValueError):
    """The file is not a session file, or another version wrote it."""


def save(module: nn.Module, precision: str | None, path: Path) -> None:
    """Write the frozen module of a session to a file. `path` changes only when the file is complete."""
    from safetensors.torch import save as serialized

    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, FrozenLayer)}
    tensors = {f"module:{name}": tensor.contiguous().clone() for name, tensor in module.state_dict().items()}
    for name, layer in layers.items():
        tensors |= {f"layer:{name}:{key}": tensor for key, tensor in layer.tensors().items()}
    content = {
        "format": FORMAT,
        "model": None if isinstance(module, FrozenLayer) else type(module).__name__,
        "precision": precision,
        "layers": {name: _description(layer) for name, layer in layers.items()},
    }
    data = serialized(tensors, {KEY: json.dumps(content)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)


def load(path: Path, model: nn.Module | None) -> tuple[nn.Module, str | None]:
    """Read the frozen module of a session and its precision from a file; see `load_session`."""
    content, tensors = _read(path)
    try:
        layers = {name: _create_layer(details, name, tensors) for name, details in content["layers"].items()}
        model_class, precision = content["model"], content["precision"]
        if model_class is None and layers.keys() != {""}:
            raise ValueError(f"expected one layer without a name, got the layers {sorted(layers)}")
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise NotASession(f"{path}: its description cannot be read ({type(error).__name__}: {error})") from None
    other_weights = {name.removeprefix("module:"): v for name, v in tensors.items() if name.startswith("module:")}
    if model_class is None:
        return layers[""], precision
    if model is None:
        raise ValueError(
            f"{path} is a session of the model {model_class}, whose code is not in the file; "
            f"pass an instance: gg.load_session(path, model={model_class}(...))"
        )
    return _copy_with_weights(path, model, layers, other_weights), precision


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and the tensors in a file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"{path}: the session file does not exist")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise NotASession(
            f"{path}: expected a session file, got a truncated or different file ({error}); save the session again"
        ) from None
    try:
        content = json.loads(text) if text is not None else None
    except ValueError as error:
        raise NotASession(f"{path}: its description is not valid JSON ({error}); save the session again") from None
    if not isinstance(content, dict):
        raise NotASession(f"{path}: expected a session file, got a safetensors file without a session's description")
    if content.get("format") != FORMAT:
        raise NotASession(
            f"{path}: expected a session in format {FORMAT}, got format {content.get('format')!r}, which another "
            "version of glassgate wrote; save the session again with this version"
        )
    return content, tensors


def _description(layer: FrozenLayer) -> dict[str, Any]:
    """Describe a layer without its weights."""
    spec, cell = layer.spec, layer.cell
    if not isinstance(cell, GraphCell | ArrayCell):
        raise ValueError(
            f"save: the cell {type(cell).__name__} runs on the reference engine, so it has no equations that a file "
            "can hold; save the module's state_dict instead"
        )
    return {
        "name": spec.name,
        "dtype": str(spec.dtype).removeprefix("torch."),
        "options": spec.options,
        "precision": layer.precision,
        "equations": format_cell(cell) if isinstance(cell, ArrayCell) else cell.equations.text,
    }


def _create_layer(description: dict[str, Any], name: str, tensors: dict[str, Tensor]) -> FrozenLayer:
    """Create a layer from its description and the tensors in the file."""
    text, options, dtype = description["equations"], description["options"], description["dtype"]
    cell: Cell = parse_cell(text) if is_cell_text(text) else GraphCell(parse(text))
    if dtype not in DTYPES or options.keys() != set(OPTIONS):
        raise ValueError(
            f"expected a dtype of {DTYPES} and the options {sorted(OPTIONS)}, got {dtype!r}, {sorted(options)}"
        )
    sizes = [tuple(layer_sizes) for layer_sizes in options["hidden_size"]]
    layer = Recurrent(cell, **{**options, "hidden_size": sizes}, device="meta")  # checks the options
    spec = Spec.of(layer, getattr(torch, dtype), str(description["name"]))
    prefix = f"layer:{name}:"
    layer_tensors = {key.removeprefix(prefix): v for key, v in tensors.items() if key.startswith(prefix)}
    return FrozenLayer.from_tensors(spec, cell, layer_tensors, description["precision"])


def _copy_with_weights(
    path: Path, model: nn.Module, layers: dict[str, FrozenLayer], other_weights: dict[str, Tensor]
) -> nn.Module:
    """Copy a model, and insert the frozen layers and the other weights of a file."""
    recurrent = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, Recurrent) or type(layer) in TORCH_LAYERS
    }
    if recurrent.keys() != layers.keys():
        raise ValueError(
            f"{path}: model must have the recurrent layers {sorted(layers)}, got {type(model).__name__} with "
            f"{sorted(recurrent)}"
        )
    copy = deepcopy(model, {id(layer): layers[name] for name, layer in recurrent.items()})
    try:
        copy.load_state_dict(other_weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: model does not fit the file: {error}") from None
    return copy.eval().requires_grad_(False)
