"""Compares an exported model in ONNX Runtime with the original module on random inputs or on examples."""

import os
from collections.abc import Sequence
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from glassgate.export.errors import ExportError
from glassgate.export.network import ModelInputs
from glassgate.layers.arguments import default_states
from glassgate.layers.stack import Recurrent

TOLERANCE = 1e-5
"""The largest accepted absolute difference. It is relative to the largest magnitude if that exceeds one."""


class Session:
    """An ONNX model that ONNX Runtime runs on one thread. It takes and returns tensors."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the exception classes of ONNX Runtime have no common base
            raise ExportError(f"to_onnx: ONNX Runtime cannot load the model: {_first_line(error)}") from error
        self.inputs = self._session.get_inputs()
        self.outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Run the model on inputs by name, and return the outputs by name."""
        try:
            results = self._session.run(None, {name: value.numpy() for name, value in inputs.items()})
        except Exception as error:  # the exception classes of ONNX Runtime have no common base
            raise ExportError(f"to_onnx: ONNX Runtime cannot run the model: {_first_line(error)}") from error
        return dict(zip(self.outputs, map(torch.from_numpy, results), strict=True))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@torch.no_grad()
def verify_layer(layer: Recurrent, path: str | os.PathLike[str], model_inputs: ModelInputs) -> None:
    """Raise ExportError if the results of a layer and its ONNX model differ.

    Args:
        layer: the layer, which runs in eval mode.
        path: the path of the ONNX model.
        model_inputs: the inputs of the ONNX model.
    """
    training = layer.training
    layer.eval()
    try:
        model = Session(path)
        for N, L in ((4, 6), (1, 9)):
            inputs, expected = _random_inputs(layer, N, L, model_inputs)
            compare(model(**inputs), expected, "to_onnx")
            if model_inputs.defaults:
                compare(model(input=inputs["input"]), _expected(layer, inputs["input"], model_inputs.step), "to_onnx")
    finally:
        layer.train(training)


@torch.no_grad()
def verify_model(module: nn.Module, path: str | os.PathLike[str], examples: Sequence[tuple[Any, ...]]) -> None:
    """Raise ExportError if the results of a PyTorch model and its ONNX model differ.

    Args:
        module: the PyTorch model, which runs in eval mode.
        path: the path of the ONNX model.
        examples: tuples of example arguments.
    """
    training = module.training
    model = Session(path)
    try:
        module.eval()
        for example in examples:
            results = pytree.tree_leaves(module(*example))
            tensors = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, Tensor)]
            outputs = model(**{input.name: value for input, value in zip(model.inputs, tensors, strict=True)})
            compare(outputs, dict(zip(model.outputs, results, strict=True)), "to_onnx")
    finally:
        module.train(training)


def compare(computed: dict[str, Tensor], expected: dict[str, Tensor], operation: str) -> None:
    """Raise ExportError if a result of ONNX Runtime differs from the expected one in shape or values."""
    for name, value in expected.items():
        if computed[name].shape != value.shape:
            raise ExportError(
                f"{operation}: ONNX Runtime returns {name} of shape {tuple(computed[name].shape)}, the layer "
                f"{tuple(value.shape)}; please report this, and pass verify=False only to look at the file"
            )
        result = computed[name]
        differs = (result != value) & ~(result.isnan() & value.isnan())  # infinity minus infinity is NaN
        magnitude = _largest(value[value.isfinite()], 1.0)
        difference = _largest((result - value)[differs], 0.0)
        if not difference <= TOLERANCE * magnitude:
            raise ExportError(
                f"{operation}: ONNX Runtime and the layer differ in {name} by {difference:.2g}, more than "
                f"{TOLERANCE:g} of the largest value {magnitude:.2g}; please report this, and pass verify=False only "
                "to look at the file"
            )


def _largest(values: Tensor, least: float) -> float:
    """The largest magnitude, but not less than `least`; NaN if a number is NaN."""
    largest = float(values.abs().max()) if values.numel() else least
    return least if largest < least else largest


def _random_inputs(
    layer: Recurrent, N: int, L: int, model_inputs: ModelInputs
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random inputs of the ONNX model by name, and the outputs of the layer by name."""
    generator = torch.Generator().manual_seed(N)
    dtype = layer.weight_ih_l0.dtype

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    axes = (N,) if model_inputs.step else (N, L) if layer.batch_first else (L, N)
    inputs = {"input": draw(*axes, layer.input_size)}
    options = {}
    if model_inputs.lengths:
        ragged = torch.randint(0, L + 1, (N,), generator=generator)
        ragged[0] = L if N == 1 else 0
        options["lengths"] = inputs["lengths"] = ragged
    if model_inputs.resets:
        options["resets"] = inputs["resets"] = torch.rand(axes, generator=generator) < 0.3
    hx: list[Tensor | tuple[Tensor, ...]] = []
    for state in layer.cell.state:
        # Only positive numbers are added to the default states: some cells need positive or mutually consistent states.
        initial = [
            v[layer.cell.state.index(state)].reshape(N, *part.forms[state].shape)
            for v, part in zip(default_states(layer, inputs["input"], N), layer.glassgate.parts, strict=True)
        ]
        initial = [v + 0.5 * draw(*v.shape).abs() for v in initial]
        if len({v.shape for v in initial}) == 1:
            stacked = torch.stack(initial)
            inputs[f"{state}_0"] = stacked
            hx.append(stacked)
        else:
            inputs |= {f"{state}_0{part.suffix}": v for part, v in zip(layer.glassgate.parts, initial, strict=True)}
            hx.append(tuple(initial))
    return inputs, _expected(layer, inputs["input"], model_inputs.step, hx[0] if len(hx) == 1 else tuple(hx), **options)


def _expected(layer: Recurrent, input: Tensor, step: bool, hx: Any = None, **options: Tensor) -> dict[str, Tensor]:
    """The output and the final states of the layer, by name."""
    axis = 1 if layer.batch_first else 0
    output, final = layer(input.unsqueeze(axis) if step else input, hx, **options)
    outputs = output if isinstance(output, tuple) else (output,)
    names = ("output", "output_reverse")
    expected = {name: v.squeeze(axis) if step else v for name, v in zip(names, outputs, strict=False)}
    for state, value in zip(layer.cell.state, final if len(layer.cell.state) > 1 else (final,), strict=True):
        if isinstance(value, Tensor):
            expected[f"{state}_n"] = value
        else:
            expected |= {f"{state}_n{part.suffix}": v for part, v in zip(layer.glassgate.parts, value, strict=True)}
    return expected
