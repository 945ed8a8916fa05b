"""Compares a model in ONNX Runtime with the original layer, on random sequences of different lengths."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from glassgate.export.errors import ExportError, optional
from glassgate.export.network import Form
from glassgate.layers.calls import default_states
from glassgate.layers.stack import Recurrent

TOLERANCE = 1e-5
"""The largest accepted difference, relative to the largest value if that is above one."""


class Session:
    """A model in ONNX Runtime that takes and returns tensors."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        runtime = optional("onnxruntime", "to_onnx: verify=True")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = self._session.get_inputs()
        self.outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """The outputs by name."""
        try:
            results = self._session.run(None, {name: value.numpy() for name, value in inputs.items()})
        except Exception as error:  # the exception classes of ONNX Runtime have no common base
            raise ExportError(f"to_onnx: ONNX Runtime cannot run the model: {_first_line(error)}") from error
        return dict(zip(self.outputs, map(torch.from_numpy, results), strict=True))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@torch.no_grad()
def verify_layer(layer: Recurrent, path: str | os.PathLike[str], form: Form) -> None:
    """Raise ExportError if the model and the layer differ.

    Args:
        layer: the layer, which runs in eval mode.
        path: the path of the model.
        form: the form of the model.
    """
    training = layer.training
    layer.eval()
    try:
        model = Session(path)
        for N, L in ((4, 6), (1, 9)):
            given, expected = _random_inputs(layer, N, L, form)
            compare(model(**given), expected, "to_onnx")
            if form.defaults:
                compare(model(input=given["input"]), _expected(layer, given["input"], form.step), "to_onnx")
    finally:
        layer.train(training)


@torch.no_grad()
def verify_model(module: nn.Module, path: str | os.PathLike[str], examples: Sequence[tuple[Any, ...]]) -> None:
    """Raise ExportError if a whole model and its file differ.

    Args:
        module: the model, which runs in eval mode.
        path: the path of the file.
        examples: example arguments of the model.
    """
    training = module.training
    model = Session(path)
    try:
        module.eval()
        for inputs in examples:
            results = pytree.tree_leaves(module(*inputs))
            tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
            outputs = model(**{input.name: value for input, value in zip(model.inputs, tensors, strict=True)})
            compare(outputs, dict(zip(model.outputs, results, strict=True)), "to_onnx")
    finally:
        module.train(training)


def compare(computed: dict[str, Tensor], expected: dict[str, Tensor], operation: str) -> None:
    """Raise ExportError if results differ."""
    for name, value in expected.items():
        if computed[name].shape != value.shape:
            raise ExportError(
                f"{operation}: ONNX Runtime returns {name} of shape {tuple(computed[name].shape)}, the layer "
                f"{tuple(value.shape)}; please report this, and pass verify=False only to look at the file"
            )
        largest = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        off = float((computed[name] - value).abs().max()) if value.numel() else 0.0
        if not off <= TOLERANCE * largest:
            raise ExportError(
                f"{operation}: ONNX Runtime and the layer differ in {name} by {off:.2g}, more than {TOLERANCE:g} of "
                f"the largest value {largest:.2g}; please report this, and pass verify=False only to look at the file"
            )


def _random_inputs(layer: Recurrent, N: int, L: int, form: Form) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random inputs by name, and the outputs of the layer by name."""
    generator = torch.Generator().manual_seed(N)
    dtype = layer.weight_ih_l0.dtype

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    axes = (N,) if form.step else (N, L) if layer.batch_first else (L, N)
    given = {"input": draw(*axes, layer.input_size)}
    options = {}
    if form.lengths:
        ragged = torch.randint(0, L + 1, (N,), generator=generator)
        ragged[0] = L if N == 1 else 0
        options["lengths"] = given["lengths"] = ragged
    if form.resets:
        options["resets"] = given["resets"] = torch.rand(axes, generator=generator) < 0.3
    hx: list[Tensor | tuple[Tensor, ...]] = []
    for state in layer.cell.state:
        # Random states are close to the default states, because some cells need states that are positive or related.
        each = [v[layer.cell.state.index(state)] for v in default_states(layer, given["input"], N)]
        each = [v + 0.5 * draw(*v.shape).abs() for v in each]
        if len({v.shape for v in each}) == 1:
            stacked = torch.stack(each)
            given[f"{state}_0"] = stacked
            hx.append(stacked)
        else:
            given |= {f"{state}_0{part.suffix}": v for part, v in zip(layer.glassgate.parts, each, strict=True)}
            hx.append(tuple(each))
    return given, _expected(layer, given["input"], form.step, hx[0] if len(hx) == 1 else tuple(hx), **options)


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
