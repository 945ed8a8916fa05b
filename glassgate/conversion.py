"""Replaces the recurrent layers of a model, from `torch.nn` to glassgate and back. Weights stay the same objects."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from glassgate.layers.cells import GRUCell, LSTMCell, RecurrentCell, RNNCell
from glassgate.layers.drop_in import GRU, LSTM, RNN
from glassgate.layers.stack import Recurrent

NAMESAKES: dict[type[nn.Module], type[nn.Module]] = {
    nn.RNN: RNN,
    nn.GRU: GRU,
    nn.LSTM: LSTM,
    nn.RNNCell: RNNCell,
    nn.GRUCell: GRUCell,
    nn.LSTMCell: LSTMCell,
}
_BACK = {ours: theirs for theirs, ours in NAMESAKES.items()}
_NOT_MOVED = ("_compiled_call_impl",)
"""Attributes of the old layer itself, which are not copied to the new one."""
_COMMON = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")


def convert(model: nn.Module, *, verbose: bool = False) -> nn.Module:
    """Swaps every `torch.nn` RNN, GRU, LSTM and their cells in a model for glassgate's, in place.

    The parameters are the same objects, so optimizers stay valid. Hooks, buffers, submodules and attributes that were
    attached to a layer move to the new one. Subclasses and parametrized layers are not replaced. Neither is a layer
    with an attached attribute whose name the new layer uses itself.

    Args:
        model: any module. If it is itself such a layer, the new layer is returned.
        verbose: whether to print a line for each recurrent module: replaced, or kept for the given reason.

    Returns:
        the model.

    Example:
        >>> import torch, glassgate as gg
        >>> class Own(torch.nn.LSTM):
        ...     pass
        >>> model = gg.convert(torch.nn.Sequential(torch.nn.LSTM(3, 4), Own(4, 4)), verbose=True)
        0: torch.nn.LSTM(3, 4) replaced
        1: Own(4, 4) kept: a subclass of torch.nn.LSTM, whose own code the new layer would not run
        >>> model
        Sequential(
          (0): LSTM(3, 4)
          (1): Own(4, 4)
        )
    """
    found = [named for named in model.named_modules(remove_duplicate=False) if _is_recurrent(named[1])]
    converted, twins = _swap(
        model, lambda part: _twin(part, NAMESAKES[type(part)]) if type(part) in NAMESAKES else None
    )
    for name, part in found if verbose else ():
        result = "replaced" if part in twins else f"kept: {_reason(part)}"
        print(f"{name or 'the model'}: {_text(part)} {result}")
    return converted


def restore(model: nn.Module) -> nn.Module:
    """Swaps every layer of glassgate in a model for its namesake in `torch.nn`, in place.

    Args:
        model: any module. If it is itself such a layer, the new layer is returned.

    Returns:
        the model.

    Raises:
        ValueError: a layer uses what `torch.nn` lacks; the model is left as it was.

    Example:
        >>> import torch, glassgate as gg
        >>> gg.restore(gg.convert(torch.nn.LSTM(3, 4)))
        LSTM(3, 4)
    """
    for name, part in model.named_modules():
        if isinstance(part, Recurrent | RecurrentCell) and (lack := _lack(part)):
            raise ValueError(f"restore: {name or 'the model'} cannot become a layer of torch.nn, which lacks {lack}")
    return _swap(model, lambda part: _twin(part, _BACK[type(part)]) if type(part) in _BACK else None)[0]


def _lack(part: Recurrent | RecurrentCell) -> str | None:
    """The features of our layer that `torch.nn` lacks."""
    if type(part) not in _BACK:
        return f"{type(part).__name__} with the cell {type(part.cell).__name__}"
    if isinstance(part, RecurrentCell):
        return None
    if part.proj_size and not isinstance(part, LSTM):
        return f"proj_size for {type(part).__name__}"
    if type(part.cell) is not part.plain:
        return f"the cell {type(part.cell).__name__}"
    if not isinstance(part.hidden_size, int):
        return f"hidden_size={part.hidden_size!r}"
    for option, value in part.unusual().items():
        if option not in _COMMON:
            return f"{option}={value!r}"
    return None


def _twin(part: nn.Module, kind: type[nn.Module]) -> nn.Module | None:
    """A layer of the other library that holds the very parameters, mode, hooks and attachments of this one.

    None if an attribute attached to the layer has a name that the other library's layer uses itself.
    """
    options: dict[str, Any] = {name: value for name in _COMMON if (value := getattr(part, name, None))}
    options |= {"bias": part.bias, "device": "meta"}
    if hasattr(part, "nonlinearity"):
        options["nonlinearity"] = part.nonlinearity
    dropout = options.pop("dropout", 0.0)
    twin = kind(part.input_size, part.hidden_size, **options)
    if dropout:
        twin.dropout = dropout  # set afterwards, as the first layer has given the warning about a single one
    usual = vars(type(part)(1, 1, device="meta")).keys()
    attached = {name: value for name, value in vars(part).items() if name not in usual and name not in _NOT_MOVED}
    used = set(dir(twin)) - set(twin._parameters)
    if used & {*attached, *part._parameters, *part._buffers, *part._modules}:
        return None
    for name in list(twin._parameters):
        if name not in part._parameters:  # a hook computes it, as those of `weight_norm` do
            delattr(twin, name)
    for name, value in {**part._parameters, **attached}.items():
        setattr(twin, name, value)
    for name, table in vars(part).items():
        if "_hook" in name or name in ("_buffers", "_non_persistent_buffers_set", "_modules"):
            vars(twin)[name] = table  # the same one, so that a handle still removes its hook
    hooks: dict[int, Any] = twin._load_state_dict_pre_hooks
    for key, hook in hooks.items():
        if getattr(hook, "with_module", False):
            hooks[key] = type(hook)(hook.hook, twin)
    twin.training = part.training
    return twin


def _is_quantised(part: nn.Module) -> bool:
    """Whether this is a recurrent module of torch's quantisation, whose package is not loaded for the question."""
    return type(part).__module__.startswith("torch.ao.nn.quant") and hasattr(part, "hidden_size")


def _is_recurrent(part: nn.Module) -> bool:
    return isinstance(part, nn.RNNBase | nn.RNNCellBase | Recurrent | RecurrentCell) or _is_quantised(part)


def _text(part: nn.Module) -> str:
    """A recurrent module as text; `torch.nn` begins the names of its layers."""
    library = "torch.nn." if type(part) in NAMESAKES else ""
    return f"{library}{type(part).__name__}({part.extra_repr()})"


def _reason(part: nn.Module) -> str:
    """Why `convert` keeps a recurrent module."""
    if isinstance(part, Recurrent | RecurrentCell):
        return "already a layer of glassgate"
    if _is_quantised(part):
        return "a quantised module; convert the model without it, and see gg.freeze for int8"
    if is_parametrized(part):
        return "its weights are parametrized; see torch.nn.utils.parametrize.remove_parametrizations"
    if type(part) in NAMESAKES:
        return "an attribute of this object has a name that the new layer uses itself"
    base = next(kind for kind in type(part).__mro__ if kind in NAMESAKES)
    return f"a subclass of torch.nn.{base.__name__}, whose own code the new layer would not run"


def _swap(
    model: nn.Module, twin_of: Callable[[nn.Module], nn.Module | None]
) -> tuple[nn.Module, dict[nn.Module, nn.Module]]:
    """Replace every occurrence of a part by its counterpart; a part that is used twice is replaced by one object.

    Returns:
        the model, and the counterparts.
    """
    with torch.no_grad():
        twins = {part: twin for part in model.modules() if (twin := twin_of(part)) is not None}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in twins:
                parent._modules[name] = twins[child]
    return twins.get(model, model), twins
