"""Writes the networks of a run as ONNX models, with the tables that decode their outputs.

The module `onnx` of a task has a function `export(task)`, which returns the models. There are several if a part of the
network runs once and another part at each step.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import glassgate as gg
from glassgate.tasks import part_of
from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.errors import OptionError
from glassgate.tasks.networks.encoder import States, as_tuple
from glassgate.tasks.runs import Run, all_or_none
from glassgate.tasks.task import Task

Network = TypeVar("Network", bound=nn.Module)

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
        decoding: the tables that decode the outputs, in addition to the vocabularies in run.json.
    """

    module: nn.Module
    axes: Mapping[str, str]
    random_inputs: Callable[[int, int], tuple[Any, ...]]
    outputs: Sequence[str]
    name: str = ""
    decoding: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path, run: Run, verify: bool, operators: bool) -> None:
        inputs = self.random_inputs(*_TRACED_SIZE)
        axes = iter(self.axes.values())

        def dynamic_axes(tensor: Tensor | None) -> dict[int, str] | None:
            """The names of the dynamic axes of an input by position."""
            if tensor is None:
                return None
            return {position: axis for position, axis in enumerate(next(axes).split()) if axis != "*"}

        gg.to_onnx(
            self.module,
            path,
            inputs,
            dynamic_shapes=pytree.tree_map(dynamic_axes, inputs),
            input_names=list(self.axes),
            output_names=self.outputs,
            metadata={"run": json.dumps(run.content), "decoding": json.dumps(self.decoding)},
            operators=operators,
            verify=[self.random_inputs(*sizes) for sizes in _VERIFIED_SIZES] if verify else False,
        )

    def description(self) -> str:
        """Return the names of the inputs, with their axes, and of the outputs."""
        inputs = ", ".join(f"{name} ({axes.replace(' ', ', ')})" for name, axes in self.axes.items())
        return f"takes {inputs}; returns {', '.join(self.outputs)}"


class Function(nn.Module, Generic[Network]):
    """The network of a task, or a part of it, as a function of tensors. Subclasses add `forward`."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network


def random_indices(N: int, L: int, count: int) -> tuple[Tensor, Tensor]:
    """Return random texts: padded indices into a vocabulary of `count` tokens, (N, L), and their lengths, (N,).

    The first length is L.
    """
    lengths = torch.randint(1, L + 1, (N,))
    lengths[0] = L
    tokens = torch.randint(min(1, count - 1), count, (N, L))
    return tokens.masked_fill(torch.arange(L) >= lengths[:, None], PADDING), lengths


def state_names(layer: gg.Recurrent, suffix: str) -> list[str]:
    """Return the names of the states of a layer: initial states have the suffix "0", final states "n"."""
    return [f"{state}_{suffix}" for state in layer.cell.state]


def random_states(layer: gg.Recurrent, N: int) -> States:
    """Return random initial states of a layer of one direction, (num_layers, N, H) each.

    They are positive, because some cells require it. A projected state is smaller than the others.
    """
    _, state = layer(torch.zeros(1, 1, layer.input_size))
    return tuple(torch.rand(layer.num_layers, N, each.shape[-1]) for each in as_tuple(state))


def write(task: Task[Any, Any, Any], run: Run, path: Path, verify: bool = True, operators: bool = True) -> list[str]:
    """Write all models of a run; after an error, write none. Return a sentence about each file.

    Args:
        task: the task, with its trained network.
        run: the folder of the run.
        path: the path of the file; with several models, the name of each is appended to the stem.
        verify: whether ONNX Runtime is compared with the network.
        operators: whether RNN, GRU and LSTM become ONNX operators; otherwise they become loops (`Scan`).
    """
    module = part_of(task, "onnx")
    if module is None:
        raise OptionError(f"--to onnx does not support runs of {task.name}; write their layers with gg.to_onnx")
    task.network.eval()
    models: Sequence[Model] = module.export(task)
    paths = [path.with_stem("-".join(filter(None, (path.stem, model.name)))) for model in models]
    for each in paths:
        if each.is_dir():
            raise OptionError(f"--output: expected the path of a file, got the folder {each}")
    try:
        with all_or_none(path.parent) as folder:
            for model, target in zip(models, paths, strict=True):
                model.write(folder / target.name, run, verify, operators)
    except ValueError as error:
        raise OptionError(str(error)) from error
    return [f"{target}: {model.description()}" for model, target in zip(models, paths, strict=True)]
