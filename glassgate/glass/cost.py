"""The description of a model in words, and the cost of its recurrent layers: multiplications, padding, memory."""

from collections.abc import Sequence

from torch import nn

from glassgate.glass.languages import clauses, listed, listed_with_and, say, sentences
from glassgate.glass.study import Study
from glassgate.glass.wording import named, percent
from glassgate.layers.stack import Recurrent


def describe(study: Study, task: str = "") -> str:
    """Describe the task, the model and its input.

    Args:
        study: the study of the model.
        task: the name of the task; empty for a recording without a task.
    """
    first = study.directions[0]
    layers = len({direction.label.split(".")[0] for direction in study.directions})
    units = sorted({direction.sizes[1] for direction in study.directions})
    total, passages = f"{study.starts[-1]:,}", len(study.passages)
    model = [
        type(first.cell).__name__,
        say("cost.layers", count=layers)
        + (say("cost.both_directions") if any(direction.reverse for direction in study.directions) else ""),
        say("cost.units", units=listed_with_and(list(map(str, units)))),
    ]
    if first.sizes[2] != first.sizes[1]:
        model.append(say("cost.projected", size=first.sizes[2]))
    read = say("cost.steps", count=total)
    return sentences(
        say("cost.task", task=named("task", task)) if task else "",
        say("cost.model", model=clauses(*model)),
        say("cost.input", input=say("cost.of_sequences", steps=read, count=passages) if passages > 1 else read),
    )


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
    keys = {"weight_ih": "cost.from_input", "weight_hh": "cost.from_state", "weight_hr": "cost.of_projection"}
    by_matrix = listed(
        [
            say(keys[name], count=f"{number:,}") if name in keys else f"{number:,} {name}"
            for name, number in multiplications.items()
        ]
    )
    in_layer = sum(p.numel() for p in layer.parameters())
    total = sum(p.numel() for p in network.parameters())
    size = next(layer.parameters()).element_size()
    states = sum(sum(part.widths.values()) for part in layer.glassgate.parts)
    saved = states + sum(len(layer.cell.gates) * part.hidden_size for part in layer.glassgate.parts)
    total_products = products * steps
    return [
        (
            say("cost.parameters"),
            say("cost.parameters_of", layers=f"{in_layer:,}", total=f"{total:,}", size=f"{total * size / 1e6:.2f}"),
        ),
        (say("cost.multiplications"), say("cost.by_matrix", count=f"{products:,}", matrices=by_matrix)),
        (
            say("cost.multiplications_on_page"),
            say(
                "cost.multiplications_of",
                millions=f"{total_products / 1e6:,.2f}",
                ten_thousands=f"{total_products / 1e4:,.0f}",
                steps=f"{steps:,}",
            ),
        ),
        (say("cost.padding"), say("cost.padding_of", percent=percent(1 - steps / padded_steps))),
        (say("cost.state"), say("cost.state_of", count=f"{states:,}", size=f"{states * size:,}")),
        (say("cost.memory"), say("cost.memory_of", size=f"{saved * size * steps / 1e6:.2f}")),
    ]
