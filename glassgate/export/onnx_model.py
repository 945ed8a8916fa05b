"""`gg.to_onnx` writes a layer or another PyTorch model as an ONNX file, and verifies it in ONNX Runtime."""

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

from glassgate.export.errors import ExportError, import_optional
from glassgate.export.files import atomic_write
from glassgate.export.network import ModelInputs, levels_of
from glassgate.layers.stack import Recurrent

if TYPE_CHECKING:
    import onnx_ir as ir


OPSET = 18
"""The oldest version of ONNX's operators (opset) with all operators that are used here."""
_BATCH = "N_or_1"
"""The batch axis of inputs with default values. Extent 1 means one value for all sequences."""


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
    """Write a layer of glassgate, or a PyTorch model that contains such layers, as an ONNX model.

    RNN, GRU and LSTM layers, also those with peepholes or coupled gates, become the ONNX operators RNN, GRU and LSTM if
    they are float32 and have no resets. Every other layer becomes the ONNX operator Scan, a loop over the equations of
    its cell. The batch size and the number of steps stay dynamic. The ONNX model of a layer has these inputs:

    - `input`: in the layout of the layer's input.
    - `lengths` (N,) int64, from 0 to L: the number of steps of each sequence.
    - `resets` (L, N) or (N, L) bool: only with `resets=True`.
    - the initial states by name, such as `h_0` and `c_0` of an LSTM, (num_layers * D, N, H). If their widths differ,
      there is one input (N, H) for each layer and direction: `h_0_l0`, `h_0_l0_reverse` and so on.

    The outputs are `output` (also `output_reverse` with merge="none") and the final states, such as `h_n` and `c_n`.

    A model that contains layers is exported by `torch.onnx.export(dynamo=True)`, which needs example inputs. Its layers
    become the operators named above.

    Args:
        module: the layer or model.
        path: the path of the file.
        inputs: a model only: example arguments.
        dynamic_shapes: a model only: its dynamic axes, as in `torch.export.export`.
        step: a layer only: whether the ONNX model computes one step, from `input` (N, H_in) to `output` (N, H_out).
        lengths: a layer only: whether the ONNX model has the input `lengths`.
        resets: a layer only: whether the ONNX model has the input `resets`.
        defaults: a layer only: whether all inputs except `input` have default values (all steps, no resets, the initial
            states of the layer). A call in ONNX Runtime may then omit them. When it loads the model, it warns that it
            does not treat them as constants; `log_severity_level = 3` of its options hides this. Other runtimes, such
            as OpenVINO, treat inputs with default values as constants.
        operators: whether RNN, GRU and LSTM become the ONNX operators of these names; otherwise they become a Scan too.
            Some runtimes ignore inputs of these operators: OpenVINO 2026.4 ignores lengths and peepholes.
        opset: the version of ONNX's operators.
        input_names: a model only: names of the inputs, in order.
        output_names: a model only: names of the outputs, in order.
        metadata: texts to store in the file, by key.
        verify: whether to run the ONNX model in ONNX Runtime before `path` is written, and compare its results with
            those of the module. A layer is verified on random inputs, a model on `inputs`. For a model, this can also
            be a list of more tuples of example arguments for the verification, such as inputs of other sizes.

    Returns:
        the path.

    Raises:
        ExportError: the module has no ONNX equivalent, the results differ, or the file cannot be written. No file is
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
    onnx, _ = import_optional("onnx", "to_onnx"), import_optional("onnxscript", "to_onnx")
    from glassgate.export.onnx_native import operators_allowed

    newest = onnx.defs.onnx_opset_version()
    if not isinstance(opset, int) or not OPSET <= opset <= newest:
        raise ExportError(f"to_onnx: opset must be from {OPSET} to {newest}, got {opset!r}")
    if not isinstance(module, Recurrent):
        names = {"input_names": input_names, "output_names": output_names}
        with operators_allowed(operators):
            inputs, model = _export_with_torch(
                module, inputs, dynamic_shapes=dynamic_shapes, opset_version=opset, **names
            )
        with _model_file(model, path, metadata) as temporary:
            if verify:
                from glassgate.export.onnx_verify import verify_model

                verify_model(module, temporary, [inputs, *([] if isinstance(verify, bool) else verify)])
        return Path(path)
    if step and module.bidirectional:
        raise ExportError(
            "to_onnx: step=True needs one direction, got bidirectional=True, whose second direction starts at the end "
            "of a sequence"
        )
    model_inputs = ModelInputs(step, lengths and not step, resets and not step, defaults)
    with operators_allowed(operators):
        model = _LayerModel(module, model_inputs).build(opset)
    with _model_file(model, path, metadata) as temporary:
        if verify:
            from glassgate.export.onnx_verify import verify_layer

            verify_layer(module, temporary, model_inputs)
    return Path(path)


@contextmanager
def _model_file(model: "ir.Model", path: str | os.PathLike[str], metadata: Mapping[str, str] | None) -> Iterator[Path]:
    """Write the model to a temporary file and yield its path. The file replaces `path` at the end of the block."""
    import onnx
    import onnx_ir as ir

    model.metadata_props.update(metadata or {})
    with atomic_write(path, "to_onnx") as temporary:
        ir.save(model, temporary)
        onnx.checker.check_model(str(temporary), full_check=True)
        yield temporary


def _export_with_torch(
    module: nn.Module, inputs: tuple[Any, ...] | None, **options: Any
) -> tuple[tuple[Any, ...], "ir.Model"]:
    """Export a model with `torch.onnx.export`.

    Returns:
        the example inputs, and the ONNX model.

    Raises:
        ExportError: the inputs are not a tuple, or the exporter fails.
    """
    if not isinstance(inputs, tuple):
        raise ExportError(
            f"to_onnx: {type(module).__name__} is not a layer of glassgate, so inputs must be a tuple of example "
            f"arguments, got {type(inputs).__name__}"
        )
    training = module.training
    try:
        with _without_warnings():
            program = torch.onnx.export(module.eval(), inputs, dynamo=True, verbose=False, **options)
    except torch.onnx.OnnxExporterError as error:
        raise ExportError(f"to_onnx: torch cannot export {type(module).__name__}: {_first_cause(error)}") from error
    finally:
        module.train(training)
    assert program is not None
    return inputs, program.model


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide the warnings of `torch.onnx.export` about torch itself and about packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _first_cause(error: BaseException) -> str:
    """The first line of the message of an error's root cause."""
    while error.__cause__ is not None and not isinstance(error, ExportError):
        error = error.__cause__
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _LayerModel:
    """Builds the ONNX model of one layer.

    Args:
        layer: the layer.
        model_inputs: the inputs of the ONNX model.
    """

    def __init__(self, layer: Recurrent, model_inputs: ModelInputs) -> None:
        import onnx_ir as ir

        from glassgate.export.onnx_ops import Operators

        self.layer, self.model_inputs, self.step = layer, model_inputs, model_inputs.step
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
        """Build the model for a version of ONNX's operators."""
        import onnx_ir as ir
        from onnx_ir.passes.common import RemoveUnusedNodesPass
        from onnxscript.optimizer import fold_constants_ir

        from glassgate.export.onnx_layer import Call, emit_levels

        op, layer = self.op, self.layer
        batch_first = layer.batch_first and not self.step
        leading_axes = ["N"] if self.step else ["N", "L"] if batch_first else ["L", "N"]
        x = self.add_input("input", self.dtype, [*leading_axes, layer.input_size])
        data = op("Transpose", x, perm=[1, 0, 2]) if batch_first else op.unsqueeze(x, 0) if self.step else x
        self.batch_size = op("Shape", data, start=1, end=2)
        lengths = self.add_lengths(op("Shape", data, start=0, end=1)) if self.model_inputs.lengths else None
        resets = None
        if self.model_inputs.resets:
            resets = self.add_input(
                "resets", ir.DataType.BOOL, [f"{axis}_or_1" for axis in leading_axes], np.array([[False]])
            )
            resets = op("Expand", resets, op("Shape", x, start=0, end=2))
            resets = op("Transpose", resets, perm=[1, 0]) if batch_first else resets
        outputs, final = emit_levels(op, self.levels, Call(data, (), lengths, resets, self.step), self.add_states())
        results: list[ir.Value] = []
        for value, name in zip(outputs, ("output", "output_reverse"), strict=False):
            width = self.levels[-1].structure.widths[len(results)]
            value = (
                op("Transpose", value, perm=[1, 0, 2]) if batch_first else op.squeeze(value, 0) if self.step else value
            )
            results.append(self.name_output(name, value, [*leading_axes, width]))
        results += self.name_final_states(final)
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

    def add_input(
        self, name: str, dtype: "ir.DataType", shape: Sequence[int | str], default: np.ndarray | None = None
    ) -> "ir.Value":
        """Add an input of the model, which has a default value if `model_inputs.defaults`."""
        import onnx_ir as ir

        if default is None or not self.model_inputs.defaults:
            shape = [axis.removesuffix("_or_1") if isinstance(axis, str) else axis for axis in shape]
            value = self.op.input(name, dtype, shape)
        else:
            value = self.op.initializer(ir.tensor(default, name=self.op.unique(name)))
            value.shape = ir.Shape(shape)
        self.inputs.append(value)
        return value

    def name_output(self, name: str, value: "ir.Value", shape: Sequence[int | str]) -> "ir.Value":
        """Name a value as an output of the model."""
        import onnx_ir as ir

        named = self.op("Identity", value, name=name)
        named.dtype, named.shape = self.dtype, ir.Shape(shape)
        return named

    def add_lengths(self, steps: "ir.Value") -> "ir.Value":
        """Add the input `lengths`. Returns the lengths in the form that operators need: (N,) int32, at most `steps`."""
        import onnx_ir as ir

        op, default = self.op, np.array([np.iinfo(np.int32).max])
        lengths = self.add_input("lengths", ir.DataType.INT64, [_BATCH], default)
        return op("Expand", op("Cast", op("Min", lengths, steps), to=ir.DataType.INT32), self.batch_size)

    def add_states(self) -> "dict[str, list[ir.Value]]":
        """Add inputs for the initial states. Returns the states, (N, width), by the label of each direction."""
        op = self.op
        directions = [direction for level in self.levels for direction in level.directions]
        by_direction: dict[str, list[ir.Value]] = {direction.label: [] for direction in directions}
        for state in self.layer.cell.state:
            defaults = [d.initial[state].reshape(d.shapes[state]).numpy() for d in directions]
            if len({v.shape for v in defaults}) == 1:
                default = np.stack(defaults)[:, None]
                shape = [len(defaults), _BATCH, *default.shape[2:]]
                stacked = self.add_input(f"{state}_0", self.dtype, shape, default)
                initial = [op("Gather", stacked, op.constant(np.int64(k)), axis=0) for k in range(len(defaults))]
            else:
                initial = [
                    self.add_input(f"{state}_0{d.suffix}", self.dtype, [_BATCH, *v.shape], v[None])
                    for d, v in zip(directions, defaults, strict=True)
                ]
            for direction, value in zip(directions, initial, strict=True):
                if len(direction.shapes[state]) != 1:
                    value = op("Reshape", value, op.constant([0, direction.widths[state]]))
                full = op.concat([self.batch_size, op.constant([direction.widths[state]])], 0)
                by_direction[direction.label].append(op("Expand", value, full))
        return by_direction

    def name_final_states(self, final: "Mapping[str, Sequence[ir.Value]]") -> "list[ir.Value]":
        """Name the final states as outputs, in the layout of the initial states."""
        outputs = []
        directions = [direction for level in self.levels for direction in level.directions]
        for k, state in enumerate(self.layer.cell.state):
            shapes = [direction.shapes[state] for direction in directions]
            values = [
                final[d.label][k]
                if len(shape) == 1
                else self.op("Reshape", final[d.label][k], self.op.constant([0, *shape]))
                for d, shape in zip(directions, shapes, strict=True)
            ]
            if len(set(shapes)) == 1:
                stacked = self.op.concat([self.op.unsqueeze(value, 0) for value in values], 0)
                outputs.append(self.name_output(f"{state}_n", stacked, [len(values), "N", *shapes[0]]))
            else:
                outputs += [
                    self.name_output(f"{state}_n{d.suffix}", value, ["N", *shape])
                    for d, value, shape in zip(directions, values, shapes, strict=True)
                ]
        return outputs
