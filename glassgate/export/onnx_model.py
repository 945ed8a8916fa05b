"""`gg.to_onnx` writes a layer or another PyTorch model as an ONNX file, and verifies it in ONNX Runtime."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from glassgate.export.errors import ExportError
from glassgate.export.files import atomic_write
from glassgate.export.network import ModelInputs
from glassgate.layers.stack import Recurrent

if TYPE_CHECKING:
    import onnx_ir as ir


OPSET = 18
"""The oldest version of ONNX's operators (opset) with all operators that are used here."""


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
    import onnx

    from glassgate.export.onnx_layer import layer_model
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
        model = layer_model(module, model_inputs, opset)
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
