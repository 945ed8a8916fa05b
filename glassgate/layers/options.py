"""The options of a layer: their types, the structure that follows from them, and changes after construction."""

from collections.abc import Iterator, Sequence
from typing import Any

from glassgate.cell_checks import check_cell
from glassgate.layers.base import BaseLayer, Structure
from glassgate.layers.levels import levels_of
from glassgate.layers.parts import Part, check_projection, check_sizes, parts_of, sizes_by_layer
from glassgate.layers.regularisers import add_regularisers, without_noise
from glassgate.shapes import check_choice, check_flag, check_rate, check_size

_FLAGS = (
    "bias", "batch_first", "bidirectional", "residual", "variational_dropout", "learn_initial_state", "recompute",
)  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "recurrent_dropout_on": ("update", "state"),
    "merge": ("concat", "sum", "mean", "none"),
}
STRUCTURAL = (
    "cell", "input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size", "merge", "residual",
    "zoneout", "recurrent_dropout", "recurrent_dropout_on", "weight_dropout", "learn_initial_state",
)  # fmt: skip
"""The options that determine the `Structure` of a layer."""


DERIVED = {
    "num_directions": "create a layer with another `bidirectional`",
    "nonlinearity": "assign another cell, such as gg.cells.RNN('relu')",
    "mode": "assign another cell, such as gg.cells.RNN('relu')",
}
"""Properties that follow from options, and what to do to change them. Assigning their present value does nothing."""


def checked_option(layer: BaseLayer, option: str, value: Any) -> Any:
    """Return a new value of an option in its usual type, or raise an error. `torch.nn` accepts several types."""
    name = type(layer).__name__
    if option == "cell":
        check_cell(name, value)
        return value.projected() if layer.proj_size else value
    if option in ("input_size", "num_layers") or (option == "hidden_size" and not isinstance(value, tuple | list)):
        return check_size(name, option, value)
    if option == "proj_size":
        return check_projection(name, value)
    if option == "dropout":
        return float(check_rate(name, option, value))
    if option in _CHOICES:
        check_choice(name, option, value, _CHOICES[option])
    if option == "bidirectional" and not isinstance(value, str):
        value = bool(value)
    return check_flag(name, option, value) if option in _FLAGS else value


def structure_of(layer: BaseLayer) -> Structure:
    """Return the data that follow from the options of a layer. Raise if the options do not fit together."""
    name, cell, D = type(layer).__name__, layer.cell, 2 if layer.bidirectional else 1
    training_cell = add_regularisers(
        name, cell, layer.zoneout, layer.recurrent_dropout, layer.recurrent_dropout_on, layer.weight_dropout
    )
    sizes = sizes_by_layer(name, layer.hidden_size, layer.num_layers, D)
    check_sizes(name, cell, sizes, layer.proj_size, layer.merge, layer.bidirectional)
    parts = tuple(parts_of(cell, layer.input_size, sizes, layer.proj_size, layer.bias, layer.merge))
    shapes = {part.names[short]: shape for part in parts for short, shape in part.shapes.items()}
    shapes |= initial_state_shapes(layer, parts)
    levels = levels_of(parts, layer.merge, layer.residual)
    return Structure(training_cell, without_noise(training_cell), sizes, parts, levels, shapes)


def restructure(layer: BaseLayer, option: str, previous: Any) -> None:
    """Apply the new value of an option to a layer.

    Raises:
        AttributeError: the new value needs other parameters than the previous one.
    """
    structure, value = structure_of(layer), getattr(layer, option)
    if structure.parameter_shapes.keys() != layer.glassgate.parameter_shapes.keys():
        raise AttributeError(
            f"{type(layer).__name__}: {option}={value!r} needs other parameters than {option}={previous!r}, which the "
            f"layer was created with; create a new layer with {option}={value!r}"
        )
    layer.glassgate.restructure(structure)
    layer.output_size = structure.levels[-1].widths[0]


def unused_option_warnings(layer: BaseLayer) -> Iterator[str]:
    """Yield a warning for each option that has no effect because of another option."""
    if layer.dropout and layer.num_layers == 1:
        yield f"dropout acts between layers, so dropout={layer.dropout} does nothing with num_layers=1"
    if layer.residual and layer.num_layers == 1:
        yield "the first layer has no residual connection, so residual=True does nothing with num_layers=1"
    if layer.merge != "concat" and not layer.bidirectional:
        yield f"merge combines two directions, so merge={layer.merge!r} does nothing with bidirectional=False"
    if layer.variational_dropout and not layer.dropout:
        yield "variational_dropout uses one dropout mask per sequence, so it does nothing with dropout=0.0"
    if layer.recurrent_dropout_on != "update" and not layer.recurrent_dropout:
        on = f"recurrent_dropout_on={layer.recurrent_dropout_on!r}"
        yield f"{on} does nothing with recurrent_dropout=0.0, the default"


def initial_state_shapes(layer: BaseLayer, parts: Sequence[Part]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the learned initial states, by the names of their parameters."""
    learned = parts if layer.learn_initial_state else ()
    return {f"{state}_0{part.suffix}": form.shape for part in learned for state, form in part.forms.items()}
