"""`gg.to_onnx` writes a layer or a whole model as an ONNX file, and verifies it in ONNX Runtime."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from glassgate.export.errors import ExportError, optional
from glassgate.export.files import replacing
from glassgate.export.network import Form, levels_of
from glassgate.layers.stack import Recurrent

if TYPE_CHECKING:
    import onnx_ir as ir


OPSET = 18
"""The oldest opset with all operators that are used here. Most runtimes support it."""
ROWS = "N_or_1"
"""The name of the batch axis of inputs with default values: one value for all sequences, or one per sequence."""


def to_onnx(
    module: nn.Module,
    path: str | os.PathLike[str],
    inputs: tuple[Any, ...] | None = None,
    *,
    dynamic_shapes: Any = None,
    step: bool = False,
    lengths: bool = True,
    resets: bool = False,
    defaults: bool = False,
    operators: bool = True,
    opset: int = OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    verify: bool | Sequence[tuple[Any, ...]] = True,
) -> Path:
    """Write a layer, or a model with layers of glassgate, as an ONNX model.

    RNN, GRU and LSTM, also with peepholes or coupled gates, become the operators of the same name. Every other cell
    becomes a `Scan` over its equations. The batch size and the number of steps stay variable.

    Inputs of the model are `input`, in the layout of the layer's input, and

    - `lengths` (N,) int64, from 0 to L: the number of steps of each sequence.
    - `resets` (L, N) or (N, L) bool, with `resets=True`.
    - the initial states by name, `h_0` and `c_0` of an LSTM, (num_layers * D, N, H). If widths differ, one for each
      layer and direction: `h_0_l0`, `h_0_l0_reverse`, and so on, (N, H).

    Outputs are `output` (with merge="none" `output` and `output_reverse`) and the final states, `h_n`, `c_n`.

    A whole model is exported by torch's exporter, `torch.onnx.export(dynamo=True)`, with support for our layers. It
    needs example inputs.

    Args:
        module: the layer or model.
        path: the path of the file.
        inputs: example arguments of a whole model.
        dynamic_shapes: the dynamic axes of a whole model, as in `torch.export.export`.
        step: whether the model computes one step, `input` (N, H_in) to `output` (N, H_out), for streams.
        lengths: whether the model has the input `lengths`.
        resets: whether the model has the input `resets`.
        defaults: whether all inputs except `input` have default values (all steps, no resets, the initial states of the
            layer), so that a call in ONNX Runtime may omit them. Other runtimes, such as OpenVINO, treat inputs with
            default values as constants.
        operators: whether RNN, GRU and LSTM become the operators of ONNX; otherwise they become a `Scan` too. Some
            runtimes ignore inputs of these operators: OpenVINO 2026.4 ignores lengths and peepholes.
        opset: the version of ONNX's operators.
        input_names: names of the inputs of a whole model, in order.
        output_names: names of the outputs of a whole model, in order.
        metadata: texts to store in the file, by key.
        verify: whether to run the model in ONNX Runtime before it is written, and compare the results with those of the
            module: for a layer on random input, for a whole model on `inputs`. For a whole model this can also be a
            list of further example arguments, in other sizes.

    Returns:
        the path.

    Raises:
        ExportError: the layer has no ONNX equivalent, the results differ, or the file cannot be written. No file is
            left.
        ImportError: a package of the extra `export` is missing.

    Example:
        >>> import tempfile, torch, glassgate as gg
        >>> path = gg.to_onnx(gg.GRU(3, 4), f"{tempfile.mkdtemp()}/gru.onnx")
        >>> import numpy as np, onnxruntime
        >>> session = onnxruntime.InferenceSession(path)
        >>> x, h_0 = np.ones((5, 2, 3), np.float32), np.zeros((1, 2, 4), np.float32)
        >>> output, h_n = session.run(None, {"input": x, "lengths": np.array([5, 3]), "h_0": h_0})
        >>> output.shape
        (5, 2, 4)
    """
    onnx, _ = optional("onnx", "to_onnx"), optional("onnxscript", "to_onnx")
    from glassgate.export.onnx_native import allowing

    newest = onnx.defs.onnx_opset_version()
    if not isinstance(opset, int) or not OPSET <= opset <= newest:
        raise ExportError(f"to_onnx: opset must be from {OPSET} to {newest}, got {opset!r}")
    if not isinstance(module, Recurrent):
        names = {"input_names": input_names, "output_names": output_names}
        with allowing(operators):
            inputs, model = _whole_model(module, inputs, dynamic_shapes=dynamic_shapes, opset_version=opset, **names)
        with _written(model, path, metadata) as temporary:
            if verify:
                from glassgate.export.onnx_verify import verify_model

                verify_model(module, temporary, [inputs, *([] if isinstance(verify, bool) else verify)])
        return Path(path)
    if step and module.bidirectional:
        raise ExportError(
            "to_onnx: step=True needs one direction, got bidirectional=True, whose second direction starts at the end "
            "of a sequence"
        )
    form = Form(step, lengths and not step, resets and not step, defaults)
    with allowing(operators):
        model = _Model(module, form).build(opset)
    with _written(model, path, metadata) as temporary:
        if verify:
            from glassgate.export.onnx_verify import verify_layer

            verify_layer(module, temporary, form)
    return Path(path)


@contextmanager
def _written(model: "ir.Model", path: str | os.PathLike[str], metadata: Mapping[str, str] | None) -> Iterator[Path]:
    """Write the model to a temporary file, which replaces `path` at the end of the block."""
    import onnx
    import onnx_ir as ir

    model.metadata_props.update(metadata or {})
    with replacing(path, "to_onnx") as temporary:
        ir.save(model, temporary)
        onnx.checker.check_model(str(temporary), full_check=True)
        yield temporary


def _whole_model(
    module: nn.Module, inputs: tuple[Any, ...] | None, **options: Any
) -> tuple[tuple[Any, ...], "ir.Model"]:
    """Check the example inputs, and export a model with torch's exporter.

    Raises:
        ExportError: inputs are missing, or the exporter fails.
    """
    if not isinstance(inputs, tuple):
        raise ExportError(
            f"to_onnx: {type(module).__name__} is not a layer of glassgate, so inputs must be a tuple of example "
            f"arguments, got {type(inputs).__name__}"
        )
    training = module.training
    try:
        with _quiet():
            program = torch.onnx.export(module.eval(), inputs, dynamo=True, verbose=False, **options)
    except torch.onnx.OnnxExporterError as error:
        raise ExportError(f"to_onnx: torch cannot export {type(module).__name__}: {_reason(error)}") from error
    finally:
        module.train(training)
    assert program is not None
    return inputs, program.model


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings of torch's exporter about torch itself and about packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _reason(error: BaseException) -> str:
    """The first line of the error that caused the exporter to fail."""
    while error.__cause__ is not None and not isinstance(error, ExportError):
        error = error.__cause__
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _Model:
    """Builds the ONNX model of one layer, with named inputs and outputs."""

    def __init__(self, layer: Recurrent, form: Form) -> None:
        import onnx_ir as ir

        from glassgate.export.onnx_ops import Operators

        self.layer, self.form, self.step = layer, form, form.step
        self.levels = levels_of(layer, "to_onnx")
        weight = self.levels[0].directions[0].weights["weight_ih"]
        if weight.dtype not in (torch.float32, torch.float64):
            raise ExportError(
                f"to_onnx: parameters must be float32 or float64, got {weight.dtype}; call layer.float() first"
            )
        self.dtype = ir.DataType.FLOAT if weight.dtype == torch.float32 else ir.DataType.DOUBLE
        self.op = Operators()
        self.inputs: list[ir.Value] = []

    def build(self, opset: int) -> "ir.Model":
        """Build the model."""
        import onnx_ir as ir
        from onnx_ir.passes.common import RemoveUnusedNodesPass
        from onnxscript.optimizer import fold_constants_ir

        from glassgate.export.onnx_layer import Call, emit_levels

        op, layer = self.op, self.layer
        batch_first = layer.batch_first and not self.step
        steps = [] if self.step else ["N", "L"] if batch_first else ["L", "N"]
        x = self.input("input", self.dtype, [*(steps or ["N"]), layer.input_size])
        data = op("Transpose", x, perm=[1, 0, 2]) if batch_first else op.unsqueeze(x, 0) if self.step else x
        self.rows = op("Shape", data, start=1, end=2)
        length = self.lengths(op("Shape", data, start=0, end=1)) if self.form.lengths else None
        resets = None
        if self.form.resets:
            resets = self.input("resets", ir.DataType.BOOL, [f"{axis}_or_1" for axis in steps], np.array([[False]]))
            resets = op("Expand", resets, op("Shape", x, start=0, end=2))
            resets = op("Transpose", resets, perm=[1, 0]) if batch_first else resets
        outputs, final = emit_levels(op, self.levels, Call(data, (), length, resets, self.step), self.states())
        results: list[ir.Value] = []
        for value, name in zip(outputs, ("output", "output_reverse"), strict=False):
            width = self.levels[-1].widths[len(results)]
            value = (
                op("Transpose", value, perm=[1, 0, 2]) if batch_first else op.squeeze(value, 0) if self.step else value
            )
            results.append(self.output(name, value, [*(steps or ["N"]), width]))
        results += self.finals(final)
        graph = ir.Graph(
            self.inputs,
            results,
            nodes=op.nodes,
            initializers=op.initializers,
            opset_imports={"": opset},
            name=type(layer).__name__,
        )
        model = ir.Model(graph, ir_version=9, producer_name="glassgate")
        fold_constants_ir(model, input_size_limit=2**40, output_size_limit=2**40)
        RemoveUnusedNodesPass()(model)
        return model

    def input(
        self, name: str, dtype: "ir.DataType", shape: Sequence[int | str], default: np.ndarray | None = None
    ) -> "ir.Value":
        """Add an input. A call may omit it if it has a default value."""
        import onnx_ir as ir

        if default is None or not self.form.defaults:
            shape = [axis.removesuffix("_or_1") if isinstance(axis, str) else axis for axis in shape]
            value = self.op.input(name, dtype, shape)
        else:
            value = self.op.initializer(ir.tensor(default, name=self.op.unique(name)))
            value.shape = ir.Shape(shape)
        self.inputs.append(value)
        return value

    def output(self, name: str, value: "ir.Value", shape: Sequence[int | str]) -> "ir.Value":
        """Name a value as an output of the model."""
        import onnx_ir as ir

        named = self.op("Identity", value, name=name)
        named.dtype, named.shape = self.dtype, ir.Shape(shape)
        return named

    def lengths(self, steps: "ir.Value") -> "ir.Value":
        """Add the input `lengths`, and convert it for the operators: (N,) int32, at most L."""
        import onnx_ir as ir

        op, default = self.op, np.array([np.iinfo(np.int32).max])
        lengths = self.input("lengths", ir.DataType.INT64, [ROWS], default)
        return op("Expand", op("Cast", op("Min", lengths, steps), to=ir.DataType.INT32), self.rows)

    def states(self) -> "dict[str, list[ir.Value]]":
        """Add inputs for the initial states. Returns them by the label of each direction, (N, W) each."""
        op = self.op
        directions = [direction for level in self.levels for direction in level.directions]
        by_direction: dict[str, list[ir.Value]] = {direction.label: [] for direction in directions}
        for state in self.layer.cell.state:
            first = [direction.initial[state].numpy() for direction in directions]
            if len({v.shape for v in first}) == 1:
                default = np.stack(first)[:, None]
                stacked = self.input(f"{state}_0", self.dtype, [len(first), ROWS, default.shape[2]], default)
                each = [op("Gather", stacked, op.constant(np.int64(k)), axis=0) for k in range(len(first))]
            else:
                each = [
                    self.input(f"{state}_0{d.suffix}", self.dtype, [ROWS, len(v)], v[None])
                    for d, v in zip(directions, first, strict=True)
                ]
            for direction, value in zip(directions, each, strict=True):
                shape = op.concat([self.rows, op.constant([direction.widths[state]])], 0)
                by_direction[direction.label].append(op("Expand", value, shape))
        return by_direction

    def finals(self, final: "Mapping[str, Sequence[ir.Value]]") -> "list[ir.Value]":
        """The final states as outputs, in the layout of the initial states."""
        outputs = []
        directions = [direction for level in self.levels for direction in level.directions]
        for k, state in enumerate(self.layer.cell.state):
            widths = [direction.widths[state] for direction in directions]
            values = [final[direction.label][k] for direction in directions]
            if len(set(widths)) == 1:
                stacked = self.op.concat([self.op.unsqueeze(value, 0) for value in values], 0)
                outputs.append(self.output(f"{state}_n", stacked, [len(values), "N", widths[0]]))
            else:
                outputs += [
                    self.output(f"{state}_n{d.suffix}", value, ["N", width])
                    for d, value, width in zip(directions, values, widths, strict=True)
                ]
        return outputs
