"""Steps of arrays as JSON text, and back. Equal steps have equal texts."""

import json
from typing import Any

from glassgate.engines.symbolic.arrays.step import ArrayStep, Local
from glassgate.engines.symbolic.arrays.value import Index, Value


def format_step(step: ArrayStep, with_locals: bool = False) -> str:
    """Return a step as text. Names of values are left out.

    Args:
        step: the step.
        with_locals: whether the text contains the local variables.
    """
    numbers = {value: k for k, value in enumerate(step.values)}

    def argument(arg: Any) -> Any:
        if isinstance(arg, Value):
            return {"value": numbers[arg]}
        if isinstance(arg, tuple) and arg and isinstance(arg[0], Index):
            return {"indices": [[each.terms, each.offset, each.modulus] for each in arg]}
        return arg

    content = {
        "sizes": dict(step.sizes),
        "gates": dict(step.gates),
        "state": dict(step.state),
        "reads": dict(step.reads),
        "inputs": dict(step.inputs),
        "values": [[value.op, [*map(argument, value.args)], value.axes] for value in numbers],
        "states": [numbers[state] for state in step.states],
    }
    if with_locals:
        content["locals"] = {name: [numbers[local.value], local.dims] for name, local in step.locals.items()}
    return json.dumps(content)


def parse_step(text: str) -> ArrayStep:
    """Return the step of a text of `format_step`."""
    content, values = json.loads(text), list[Value]()

    def argument(arg: Any) -> Any:
        if isinstance(arg, list):
            return tuple(arg)
        if isinstance(arg, dict) and "value" in arg:
            return values[arg["value"]]
        if isinstance(arg, dict):
            return tuple(Index(tuple((axis, n) for axis, n in terms), *rest) for terms, *rest in arg["indices"])
        return arg

    for op, args, axes in content["values"]:
        values.append(Value(op, tuple(map(argument, args)), tuple(axes)))
    axes_by_name = [{name: tuple(axes) for name, axes in content[key].items()} for key in ("gates", "state", "inputs")]
    gates, state, inputs = axes_by_name
    states = tuple(values[k] for k in content["states"])
    local = {name: Local(values[k], tuple(dims)) for name, (k, dims) in content.get("locals", {}).items()}
    return ArrayStep(content["sizes"], gates, state, states, {}, frozenset(), content["reads"], inputs, local)
