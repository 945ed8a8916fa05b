"""Steps of arrays as JSON text, and back. Equal steps have equal texts."""

import json
from typing import Any

from glassgate.engines.symbolic.arrays.step import ArrayStep, Local
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.ops import BY_SYMBOL, Index, RecurrentHalf


def format_step(step: ArrayStep, with_locals: bool = False) -> str:
    """Return a step as text. Names of values are left out.

    Args:
        step: the step.
        with_locals: whether the text contains the local variables.
    """
    numbers = {value: k for k, value in enumerate(step.values)}

    def entry(value: Value) -> list[Any]:
        args = [{"value": numbers[arg]} if isinstance(arg, Value) else arg for arg in value.args]
        if isinstance(value.op, str):
            return [value.op, args, value.axes]
        own = [*map(_format, value.op.contents)]
        # The format has the gate of a product before its argument.
        return [value.op.symbol, [*own, *args] if isinstance(value.op, RecurrentHalf) else [*args, *own], value.axes]

    content = {
        "sizes": dict(step.sizes),
        "gates": dict(step.gates),
        "state": dict(step.state),
        "reads": dict(step.reads),
        "inputs": dict(step.inputs),
        "values": [*map(entry, numbers)],
        "states": [numbers[state] for state in step.states],
    }
    if with_locals:
        content["locals"] = {name: [numbers[local.value], local.dims] for name, local in step.locals.items()}
        content |= {"unread": sorted(step.unread)} if step.unread else {}
    return json.dumps(content)


def parse_step(text: str) -> ArrayStep:
    """Return the step of a text of `format_step`."""
    content, values = json.loads(text), list[Value]()

    for op, arguments, axes in content["values"]:
        parsed = [values[arg["value"]] if isinstance(arg, dict) and "value" in arg else arg for arg in arguments]
        if op in OPERATIONS:
            values.append(Value(op, tuple(parsed), tuple(axes)))
        else:
            own = [_parse(arg) for arg in parsed if not isinstance(arg, Value)]
            args = tuple([arg for arg in parsed if isinstance(arg, Value)])
            values.append(Value(BY_SYMBOL[op](*own), args, tuple(axes)))
    axes_by_name = [{name: tuple(axes) for name, axes in content[key].items()} for key in ("gates", "state", "inputs")]
    gates, state, inputs = axes_by_name
    states = tuple(values[k] for k in content["states"])
    local = {name: Local(values[k], tuple(dims)) for name, (k, dims) in content.get("locals", {}).items()}
    return ArrayStep(content["sizes"], gates, state, states, {}, frozenset(), content["reads"], inputs, local)


def _format(part: Any) -> Any:
    """A field of an operation as JSON."""
    if isinstance(part, tuple) and part and isinstance(part[0], Index):
        return {"indices": [[each.terms, each.offset, each.modulus] for each in part]}
    return part


def _parse(part: Any) -> Any:
    if isinstance(part, dict):
        return tuple(Index(tuple((axis, n) for axis, n in terms), *rest) for terms, *rest in part["indices"])
    return tuple(part) if isinstance(part, list) else part
