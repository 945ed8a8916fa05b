"""Writes the networks of a run as ONNX models, with the tables that decode their outputs.

The module `onnx` of a task has a function `export(task)`, which returns an `Exported`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.utils import _pytree as pytree

import glassgate as gg
from glassgate.tasks import part_of
from glassgate.tasks.errors import OptionError
from glassgate.tasks.runs import Run, all_or_none
from glassgate.tasks.task import Task

_TRACED_SIZE = (3, 5)
"""(sequences, steps) of the example inputs that the exporter traces."""
_VERIFIED_SIZES = ((1, 1), (4, 2))
"""(sequences, steps) of the example inputs on which ONNX Runtime is compared with the network."""


@dataclass(frozen=True)
class Model:
    """One ONNX model: a function of tensors.

    Attributes:
        module: the function, in eval mode.
        axes: the axes of each input, such as "N L", by the name of the input. A letter names an axis of any
            size, "*" is an axis of a fixed size.
        random_inputs: a function of the numbers of sequences and steps that returns random inputs.
        outputs: the names of the outputs.
        name: the role of the model; empty if the run has only one model.
    """

    module: nn.Module
    axes: Mapping[str, str]
    random_inputs: Callable[[int, int], tuple[Any, ...]]
    outputs: Sequence[str]
    name: str = ""

    def write(self, path: Path, metadata: Mapping[str, str], verify: bool, operators: bool) -> None:
        """Write the model."""
        inputs = self.random_inputs(*_TRACED_SIZE)
        axes = iter(self.axes.values())
        shapes = pytree.tree_map(lambda each: None if each is None else _dynamic_axes(next(axes)), inputs)
        gg.to_onnx(
            self.module,
            path,
            inputs,
            dynamic_shapes=shapes,
            input_names=list(self.axes),
            output_names=self.outputs,
            metadata=metadata,
            operators=operators,
            verify=[self.random_inputs(*sizes) for sizes in _VERIFIED_SIZES] if verify else False,
        )

    def description(self) -> str:
        """Return the names of the inputs, with their axes, and of the outputs."""
        inputs = ", ".join(f"{name} ({axes.replace(' ', ', ')})" for name, axes in self.axes.items())
        return f"takes {inputs}; returns {', '.join(self.outputs)}"


def _dynamic_axes(axes: str) -> dict[int, str]:
    """The names of the dynamic axes by position."""
    return {position: axis for position, axis in enumerate(axes.split()) if axis != "*"}


class Exported(NamedTuple):
    """The ONNX models of a run.

    Attributes:
        models: the models; several if a part of the network runs once and another part at each step.
        decoding: the tables that decode the outputs, in addition to the vocabularies in run.json.
    """

    models: Sequence[Model]
    decoding: Mapping[str, Any] = {}


def write(task: Task[Any, Any, Any], run: Run, path: Path, verify: bool = True, operators: bool = True) -> list[str]:
    """Write all models of a run; after an error, write none.

    Args:
        task: the task, with its trained network.
        run: the folder of the run.
        path: the path of the file; with several models, the name of each is appended to the stem.
        verify: whether ONNX Runtime is compared with the network.
        operators: whether RNN, GRU and LSTM become ONNX operators; otherwise they become loops (`Scan`).

    Returns:
        a sentence about each file.

    Raises:
        OptionError: ONNX cannot express the network, the results differ, or a file cannot be written.
    """
    module = part_of(task, "onnx")
    if module is None:
        raise OptionError(f"--to onnx does not support runs of {task.name}; write their layers with gg.to_onnx")
    task.network.eval()
    exported: Exported = module.export(task)
    metadata = {"run": json.dumps(run.content), "decoding": json.dumps(exported.decoding)}
    paths = [path.with_stem("-".join(filter(None, (path.stem, model.name)))) for model in exported.models]
    for each in paths:
        if each.is_dir():
            raise OptionError(f"--output: expected the path of a file, got the folder {each}")
    try:
        with all_or_none(path.parent) as folder:
            for model, target in zip(exported.models, paths, strict=True):
                model.write(folder / target.name, metadata, verify, operators)
    except ValueError as error:
        raise OptionError(str(error)) from error
    return [f"{target}: {model.description()}" for model, target in zip(exported.models, paths, strict=True)]
