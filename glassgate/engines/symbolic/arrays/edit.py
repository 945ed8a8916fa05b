"""Edits of a traced step: named values are multiplied by a factor, or replaced by numbers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep, Local
from glassgate.engines.symbolic.arrays.value import Value, leaf
from glassgate.engines.symbolic.rewrite import rewrite_graph

EditValue = Callable[[Value, Callable[[str], Value]], Value]
"""Takes a value, and a function from a kind of number to the numbers of this kind. Returns the edited value."""


def editable_axes(step: ArrayStep) -> dict[str, tuple[str, ...]]:
    """The axes of each value that can be edited, by name: the states, and variables with all of their axes."""
    found = {name: tuple([axis for axis in local.dims if axis is not None]) for name, local in step.locals.items()}
    found = {name: axes for name, axes in found.items() if {*axes} == {*step.locals[name].value.axes}}
    return found | dict(step.state)


def edited_step(step: ArrayStep, edits: Mapping[str, EditValue]) -> ArrayStep:
    """The step with edited values. The edit of a state applies to the result of the step.

    Args:
        step: the step.
        edits: the edit of each value, by its name in `editable_axes`. The numbers of a kind are read from the noise
            `kind_name`.
    """
    axes = editable_axes(step)

    def edited(name: str, value: Value) -> Value:
        return edits[name](value, lambda kind: leaf(ops.Noise(f"{kind}_{name}"), axes[name], f"{kind}_{name}"))

    names: dict[Value, list[str]] = {}
    for name in edits:
        if name not in step.state:
            names.setdefault(step.locals[name].value, []).append(name)

    def rule(value: Value, copy: Value) -> Value | None:
        new = copy
        for name in names.get(value, ()):
            new = edited(name, new)
        return new

    new = rewrite_graph([*step.states, *(local.value for local in step.locals.values())], rule)
    states = [new[value] for value in step.states]
    states = [edited(name, v) if name in edits else v for name, v in zip(step.state, states, strict=True)]
    local = {name: Local(new[each.value], each.dims) for name, each in step.locals.items()}
    merged = rewrite_graph([*states, *(each.value for each in local.values())])
    alive = {name: each._replace(value=merged[each.value]) for name, each in local.items()}
    result = replace(step, states=tuple([merged[v] for v in states]), named={})
    return replace(result, locals=_alive(result.values, alive))


def _alive(values: Iterable[Value], local: Mapping[str, Local]) -> dict[str, Local]:
    values = set(values)
    return {name: each for name, each in local.items() if each.value in values}
