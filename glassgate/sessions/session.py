"""`gg.freeze`, `gg.load_session` and the session that they return; `file.py` has the format of a saved session."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from glassgate.conversion import NAMESAKES, convert
from glassgate.layers.frozen import FrozenLayer, freeze_layer
from glassgate.layers.stack import Recurrent
from glassgate.layers.stream import Stream
from glassgate.sessions import file
from glassgate.sessions.compare import Comparison, compare
from glassgate.sessions.file import STOCK

NOISE = ("dropout", "weight_dropout", "recurrent_dropout", "zoneout")
"""Rates of a recurrent layer that act in training mode."""


def freeze(
    module: nn.Module,
    precision: str | None = None,
    *,
    keep: Sequence[str] = (),
    compile_for: Iterable[tuple[int, int]] = (),
) -> "Session":
    """Make an inference session of a layer or of a whole model.

    The weights are copied, and those of recurrent layers are packed once. All other modules of a model run unchanged,
    on copies of their weights. Layers of `torch.nn` (RNN, GRU, LSTM) are converted to those of Glassgate. Inside
    `with gg.engine(name)`, the session runs on that engine.

    Args:
        module: a recurrent layer, or a model with at least one, in eval mode, on the CPU.
        precision: the dtype of the weights and matrix products of recurrent layers: "float32", "float64", "bfloat16"
            (needs AVX512-BF16 or AMX-BF16), or "int8". Inputs, outputs and states have the dtype of the module. The
            default is the dtype of each layer, or float32 if that is float16 or bfloat16.
        keep: for int8, the matrices that stay in float32: names of parameters such as "encoder.weight_ih_l0", where `*`
            matches any text. Input matrices with fewer than 16 columns always stay in float32.
        compile_for: pairs (L, N), only if `module` is one layer. Calls of these shapes are compiled and prepared now
            instead of at the first call.

    Returns:
        the session, which is called like the module.

    Raises:
        TypeError: `module` is not a module.
        ValueError: a module is in training mode with dropout or other noise, is not on the CPU, or is edited; or the
            model has no recurrent layer.
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
        rows = (N, L) if layer.spec.batch_first else (L, N)
        session(torch.zeros(*rows, layer.spec.input_size, dtype=layer.spec.dtype))
    return session


def load_session(path: str | Path, model: nn.Module | None = None) -> "Session":
    """Load a session that `session.save` wrote, on this or another machine, and pack its weights for this processor.

    Args:
        path: the file.
        model: for a session of a whole model, an instance of the model, because the file does not contain its code. It
            is not modified, and its weights are not read.

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

    It never changes between two calls of `refresh`, so any number of threads may call it at the same time. Calls build
    no autograd graph. Kernels release the GIL. Each thread keeps working memory for its largest call.

    Attributes:
        module: the frozen copy: a frozen layer, or a model with frozen layers.
        source: the original module; None if the session was loaded from a file, or is a clone of such a session.
        precision, keep: the arguments of `gg.freeze`.
    """

    def __init__(
        self, source: nn.Module | None, module: nn.Module, precision: str | None, keep: Sequence[str] = ()
    ) -> None:
        self.source, self.module, self.precision, self.keep = source, module, precision, keep

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, with the arguments and results of its `forward`."""
        module = self.module
        if isinstance(module, FrozenLayer):
            return module.forward(*args, **kwargs)
        with torch.no_grad():
            return module(*args, **kwargs)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Session: packed weights cannot be copied or pickled; use session.clone() or session.save(path)"
        )

    def stream(self, batch_size: int = 1) -> Stream:
        """A stream, which processes sequences one step at a time; only for a session of one layer.

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
        return self.module.stream(batch_size)

    def refresh(self) -> None:
        """Copy and pack the weights of the module again. Calls that run in other threads finish with the old weights.

        Raises:
            RuntimeError: the session was loaded from a file.
        """
        if self.source is None:
            raise RuntimeError("refresh: this session was loaded from a file and has no module to read weights from")
        self.module = _snapshot(self.source, self.precision, self.keep)

    def clone(self) -> "Session":
        """A second session that shares the weights, until `refresh` is called on one of the two."""
        return Session(self.source, self.module, self.precision, self.keep)

    def save(self, path: str | Path) -> None:
        """Write the session to one safetensors file, with its description as JSON in the file's metadata.

        The file contains tensors, sizes and equations, and no executable code. For a model, it contains the weights of
        all modules, but not their code.

        Args:
            path: the file. An existing file is replaced only when the new one is complete.

        Raises:
            ValueError: a cell runs on the reference engine, so it has no equations to write.
        """
        file.save(self.module, self.precision, Path(path))

    def compare(self, *args: Any, **kwargs: Any) -> Comparison:
        """Print the difference of each gate and state from its value in float32.

        Args:
            args, kwargs: the arguments of one call, such as a batch of validation data.

        Returns:
            the table that is printed; `rows` has its numbers.

        Raises:
            RuntimeError: the session was loaded from a file, which has no weights in float32.
        """
        if self.source is None:
            raise RuntimeError("compare: this session was loaded from a file and has no module to compare with")
        comparison = compare(self.module, _snapshot(self.source, None, ()), args, kwargs)
        print(comparison)
        return comparison

    def __repr__(self) -> str:
        return f"Session({self.module!r})"


def _snapshot(module: nn.Module, precision: str | None, keep: Sequence[str]) -> nn.Module:
    """A copy of the module in which recurrent layers are frozen."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"freeze: module must be a layer or a model, a torch.nn.Module, got {type(module).__name__}")
    layers: dict[str, nn.Module] = {}
    for name, part in module.named_modules():
        _check_module(name, part)
        if isinstance(part, Recurrent) or type(part) in STOCK:
            layers[name] = part
    if not layers:
        raise ValueError(f"freeze: {type(module).__name__} has no recurrent layer; a session has at least one")
    memo: dict[int, Any] = {}
    parameters = {
        f"{name}.{own}" if name else own for name, part in layers.items() for own, _ in part.named_parameters()
    }
    for pattern in keep:
        if precision == "int8" and not any(fnmatchcase(name, pattern) for name in parameters):
            raise ValueError(f"freeze: keep has {pattern!r}, which matches none of the parameters {sorted(parameters)}")
    for name, part in layers.items():
        prefix = f"{name}." if name else ""
        kept = {own for own, _ in part.named_parameters() if any(fnmatchcase(prefix + own, p) for p in keep)}
        layer = part if isinstance(part, Recurrent) else _converted(part)
        memo[id(part)] = freeze_layer(layer, precision, kept.__contains__)
    if id(module) in memo:
        return memo[id(module)]
    copy = deepcopy(module, memo)
    for parameter in copy.parameters():
        parameter.requires_grad_(False)
    return copy


def _converted(part: nn.Module) -> Recurrent:
    """Convert a layer of `torch.nn` to one of Glassgate with the same parameters."""
    (layer,) = convert(nn.Sequential(part)).children()
    if not isinstance(layer, Recurrent):
        raise ValueError(
            f"freeze: {part} has attributes whose names glassgate.{NAMESAKES[type(part)].__name__} needs; rename them"
        )
    return layer


def _check_module(name: str, part: nn.Module) -> None:
    """Raise unless a module is on the CPU and gives the same result at every call."""
    label = f"{type(part).__name__} {name!r}" if name else type(part).__name__
    for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
        if tensor.device.type != "cpu":
            raise ValueError(
                f"freeze: sessions run on the CPU, and {label} is on {tensor.device}; freeze a copy of the model: "
                "gg.freeze(copy.deepcopy(model).cpu())"
            )
    if not part.training:
        return
    rates = {rate: value for rate in NOISE if (value := getattr(part, rate, 0))}
    if isinstance(part, nn.modules.dropout._DropoutNd) and part.p:
        rates = {"p": part.p}
    if isinstance(part, nn.modules.batchnorm._NormBase):
        rates = {"training": True}
    if rates:
        name, value = next(iter(rates.items()))
        raise ValueError(
            f"freeze: {label} is in training mode with {name}={value}, so two calls can give different results; call "
            "model.eval() first"
        )
