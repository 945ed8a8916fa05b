"""`gg.freeze` and `gg.load_session`, which create inference sessions. `file.py` defines the format of session files."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from torch import nn

from glassgate.conversion import NAMESAKES, convert
from glassgate.layers.frozen import FrozenLayer, freeze_layer
from glassgate.layers.stack import Recurrent
from glassgate.layers.stream import Stream
from glassgate.sessions import file
from glassgate.sessions.compare import Comparison, compare
from glassgate.sessions.file import TORCH_LAYERS

NOISE_OPTIONS = ("dropout", "weight_dropout", "recurrent_dropout", "zoneout")
"""Options of recurrent layers that draw random numbers in training mode."""
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_NORMALIZATIONS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


def freeze(
    module: nn.Module,
    precision: str | None = None,
    *,
    keep: Sequence[str] = (),
    compile_for: Iterable[tuple[int, int]] = (),
) -> "Session":
    """Create an inference session of a layer or of a whole model.

    The weights of recurrent layers are copied and packed once, in the order in which the kernels read them. All other
    modules of a model run unchanged, on copies of their weights. RNN, GRU and LSTM layers of `torch.nn` are converted
    to Glassgate layers.

    If `freeze` is called inside `with gg.engine(name)`, the session runs on that engine.

    Args:
        module: a recurrent layer, or a model with at least one, in eval mode, on the CPU.
        precision: the dtype of the weights and matrix products of recurrent layers: "float32", "float64", "bfloat16"
            (needs AVX512-BF16 or AMX-BF16), or "int8". The default is the dtype of each layer, or float32 for a
            layer in float16 or bfloat16. Inputs, outputs and states have the dtype of the module in any case.
        keep: for int8, the matrices that stay in float32: names of parameters such as "encoder.weight_ih_l0", where `*`
            matches any text. Input matrices with fewer than 16 columns always stay in float32.
        compile_for: pairs (L, N) of a number of steps and a number of sequences, only if `module` is one layer. The
            kernels for inputs of these sizes are compiled now instead of at the first call.

    Returns:
        the session, which is called like the module.

    Raises:
        TypeError: `module` is not a module.
        ValueError: a module is in training mode with dropout, other noise or batch normalisation, or is not on the CPU.
            Or a layer is being edited, the model has no recurrent layer, or a pattern in `keep` matches no parameter.
        EngineError: the processor or a cell does not support the precision, or the named engine cannot run sessions.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4).eval()
        >>> session = gg.freeze(layer)
        >>> x = torch.randn(5, 2, 3)
        >>> torch.allclose(session(x)[0], layer(x)[0], atol=1e-6)
        True
    """
    keep = tuple(keep)
    session = Session(module, _snapshot(module, precision, keep), precision, keep)
    shapes = list(compile_for)
    layer = session.module
    if shapes and not isinstance(layer, FrozenLayer):
        raise ValueError(
            f"freeze: compile_for needs a single layer, got {type(module).__name__}; call "
            "the session with an input of each shape instead"
        )
    for L, N in shapes:
        assert isinstance(layer, FrozenLayer)
        batch_shape = (N, L) if layer.spec.batch_first else (L, N)
        session(torch.zeros(*batch_shape, layer.spec.input_size, dtype=layer.spec.dtype))
    return session


def load_session(path: str | Path, model: nn.Module | None = None) -> "Session":
    """Load a session that `session.save` wrote, on this or another machine, and pack its weights for this processor.

    Args:
        path: the file.
        model: for a session of a whole model, an instance of the model, because the file does not contain its code. The
            instance is not modified, and its weights are not used.

    Returns:
        the session.

    Raises:
        OSError: the file does not exist.
        NotASession: (a ValueError) the file is truncated, is not a session, or was written by another version.
        ValueError: `model` is missing, or does not match the file.
        EngineError: this processor does not support the session's precision.

    Example:
        >>> import tempfile, pathlib, torch, glassgate as gg
        >>> session, x = gg.freeze(gg.GRU(3, 4).eval()), torch.randn(5, 2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "gru.safetensors"
        ...     session.save(path)
        ...     loaded = gg.load_session(path)
        >>> torch.equal(loaded(x)[0], session(x)[0])
        True
    """
    module, precision = file.load(Path(path), model)
    return Session(None, module, precision)


class Session:
    """A model for inference, from `gg.freeze` or `gg.load_session`.

    Its weights change only in `refresh`. Any number of threads may call it at the same time: kernels release the GIL,
    and each thread keeps working memory for its largest call. Calls build no autograd graph.

    Attributes:
        source: the original module; None if the session was loaded from a file, or is a clone of such a session.
        precision, keep: the arguments of `gg.freeze`.
    """

    def __init__(
        self, source: nn.Module | None, module: nn.Module, precision: str | None, keep: Sequence[str] = ()
    ) -> None:
        self.source, self.module, self.precision, self.keep = source, module, precision, keep

    @property
    def module(self) -> nn.Module:
        """The frozen copy: a frozen layer, or a model with frozen layers."""
        return self._module

    @module.setter
    def module(self, module: nn.Module) -> None:
        # A frozen layer has no hooks and disables gradients itself.
        run = module.forward if isinstance(module, FrozenLayer) else torch.no_grad()(module.__call__)
        self._module, self._run = module, run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model. The arguments and results are those of its `forward`."""
        return self._run(*args, **kwargs)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Session: packed weights cannot be copied or pickled; use session.clone() or session.save(path)"
        )

    def stream(self, batch_size: int = 1) -> Stream:
        """Return a stream, which runs the layer one step or one block of steps at a time; see `layers.stream.Stream`.

        Args:
            batch_size: the number of sequences.

        Raises:
            TypeError: the session is of a whole model.
            ValueError: the layer is bidirectional.
        """
        if not isinstance(self.module, FrozenLayer):
            raise TypeError(
                "stream: only a session of one layer runs step by step, and this one is of "
                f"{type(self.module).__name__}; freeze the layer itself: gg.freeze(model.layer)"
            )
        return Stream(lambda: cast(FrozenLayer, self.module), batch_size)

    def refresh(self) -> None:
        """Copy and pack the weights of the original module again.

        Calls that are running in other threads finish with the old weights.

        Raises:
            RuntimeError: the session was loaded from a file.
        """
        if self.source is None:
            raise RuntimeError("refresh: this session was loaded from a file and has no module to read weights from")
        self.module = _snapshot(self.source, self.precision, self.keep)

    def clone(self) -> "Session":
        """Return a second session, which shares the weights until `refresh` is called on one of the two."""
        return Session(self.source, self.module, self.precision, self.keep)

    def save(self, path: str | Path) -> None:
        """Write the session to a safetensors file.

        The file contains the weights of all modules, and the sizes and equations of the recurrent layers as JSON. It
        contains no executable code. For a whole model, `load_session` therefore needs an instance of the model.

        Args:
            path: the file. An existing file is replaced only when the new one is complete.

        Raises:
            ValueError: a cell runs on the reference engine, so it has no equations to write.
        """
        file.save(self.module, self.precision, Path(path))

    def compare(self, *args: Any, **kwargs: Any) -> Comparison:
        """Print the difference of each gate and state from its value in the default precision of `gg.freeze`.

        Args:
            args, kwargs: the arguments of one call, such as a batch of validation data.

        Returns:
            the printed table. Its attribute `rows` contains the numbers.

        Raises:
            RuntimeError: the session was loaded from a file, which does not contain the original weights.
        """
        if self.source is None:
            raise RuntimeError("compare: this session was loaded from a file and has no module to compare with")
        comparison = compare(self.module, _snapshot(self.source, None, ()), args, kwargs)
        print(comparison)
        return comparison

    def __repr__(self) -> str:
        return f"Session({self.module!r})"


def _snapshot(module: nn.Module, precision: str | None, keep: Sequence[str]) -> nn.Module:
    """Copy a module and freeze its recurrent layers."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"freeze: module must be a layer or a model, a torch.nn.Module, got {type(module).__name__}")
    layers: dict[str, nn.Module] = {}
    for name, part in module.named_modules():
        _check_module(name, part)
        if isinstance(part, Recurrent) or type(part) in TORCH_LAYERS:
            layers[name] = part
    if not layers:
        raise ValueError(f"freeze: {type(module).__name__} has no recurrent layer; a session has at least one")
    frozen: dict[int, Any] = {}  # by the id of the original layer: the memo of `deepcopy`
    parameters = {
        f"{name}.{short}" if name else short for name, part in layers.items() for short, _ in part.named_parameters()
    }
    for pattern in keep:
        if precision == "int8" and not any(fnmatchcase(name, pattern) for name in parameters):
            raise ValueError(f"freeze: keep has {pattern!r}, which matches none of the parameters {sorted(parameters)}")
    for name, part in layers.items():
        prefix = f"{name}." if name else ""
        kept = {short for short, _ in part.named_parameters() if any(fnmatchcase(prefix + short, p) for p in keep)}
        layer = part if isinstance(part, Recurrent) else _convert_layer(part)
        frozen[id(part)] = freeze_layer(layer, precision, kept.__contains__)
    if id(module) in frozen:
        return frozen[id(module)]
    copy = deepcopy(module, frozen)
    for parameter in copy.parameters():
        parameter.requires_grad_(False)
    return copy


def _convert_layer(part: nn.Module) -> Recurrent:
    """Convert a layer of `torch.nn` to one of Glassgate with the same parameters."""
    (layer,) = convert(nn.Sequential(part)).children()
    if not isinstance(layer, Recurrent):
        raise ValueError(
            f"freeze: {part} has attributes whose names glassgate.{NAMESAKES[type(part)].__name__} needs; rename them"
        )
    return layer


def _check_module(name: str, part: nn.Module) -> None:
    """Raise ValueError if a module is not on the CPU, or if its results can differ between calls."""
    label = f"{type(part).__name__} {name!r}" if name else type(part).__name__
    for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
        if tensor.device.type != "cpu":
            raise ValueError(
                f"freeze: sessions run on the CPU, and {label} is on {tensor.device}; freeze a copy of the model: "
                "gg.freeze(copy.deepcopy(model).cpu())"
            )
    if not part.training:
        return
    noise = {option: value for option in NOISE_OPTIONS if (value := getattr(part, option, 0))}
    if isinstance(part, _DROPOUTS) and part.p:
        noise = {"p": part.p}
    if isinstance(part, _NORMALIZATIONS):
        noise = {"training": True}
    if noise:
        option, value = next(iter(noise.items()))
        raise ValueError(
            f"freeze: {label} is in training mode with {option}={value}, so two calls can give different results; call "
            "model.eval() first"
        )
