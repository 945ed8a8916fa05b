"""The description of a model in words, and the cost of its recurrent layers: multiplications, padding, memory."""

from collections.abc import Sequence

from torch import nn

from glassgate.glass.study import Study
from glassgate.glass.wording import count
from glassgate.layers.stack import Recurrent


def describe(study: Study, task: str = "") -> str:
    """Describe the task, the model and its input.

    Args:
        study: the study of the model.
        task: the name of the task; empty for a recording without a task.
    """
    first = study.directions[0]
    layers = len({direction.label.split(".")[0] for direction in study.directions})
    both = " in two directions" if any(direction.reverse for direction in study.directions) else ""
    units = sorted({direction.sizes[1] for direction in study.directions})
    projected = f", projected to {first.sizes[2]}" if first.sizes[2] != first.sizes[1] else ""
    total, passages = study.starts[-1], len(study.passages)
    read = f"{total:,} steps" + (f" of {count(passages, 'sequence', 'sequences')}" if passages > 1 else "")
    model = f"{type(first.cell).__name__}, {count(layers, 'layer', 'layers')}{both}, "
    model += f"{' and '.join(map(str, units))} units{projected}"
    prefix = f"Task: {task.replace('-', ' ')}. " if task else ""
    return f"{prefix}Model: {model}. Input: {read}."


def cost(layer: Recurrent, network: nn.Module, lengths: Sequence[int]) -> list[tuple[str, str]]:
    """Return the rows of the cost table as pairs (name, amount)."""
    steps, padded_steps = sum(lengths), len(lengths) * max(lengths)
    matrices = [
        (name, shape)
        for part in layer.glassgate.parts
        for name, shape in part.shapes.items()
        if len(shape) == 2 and name.startswith("weight")
    ]
    multiplications: dict[str, int] = {}
    for name, shape in matrices:
        multiplications[name] = multiplications.get(name, 0) + shape[0] * shape[1]
    products = sum(multiplications.values())
    words = {"weight_ih": "from the input", "weight_hh": "from the state", "weight_hr": "of the projection"}
    by_matrix = ", ".join(f"{number:,} {words.get(name, name)}" for name, number in multiplications.items())
    in_layer = sum(p.numel() for p in layer.parameters())
    total = sum(p.numel() for p in network.parameters())
    size = next(layer.parameters()).element_size()
    states = sum(sum(part.widths.values()) for part in layer.glassgate.parts)
    saved = states + sum(len(layer.cell.gates) * part.hidden_size for part in layer.glassgate.parts)
    return [
        ("parameters", f"{in_layer:,} in the recurrent layers, {total:,} in total; {total * size / 1e6:.2f} MB"),
        ("multiplications per step", f"{products:,}: {by_matrix}"),
        ("multiplications on this page", f"{products * steps / 1e6:,.2f} million for {steps:,} steps, without padding"),
        ("padding", f"{1 - steps / padded_steps:.1%} if the sequences were one padded batch"),
        ("state", f"{states:,} numbers per sequence, {states * size:,} bytes"),
        ("memory for gradients", f"about {saved * size * steps / 1e6:.2f} MB for the states and gates of these steps"),
    ]
