"""`gg.convert` and `gg.restore`: replace the recurrent layers of a model, from `torch.nn` to glassgate and back.

In this module, a namesake is the class with the same name in the other library.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from glassgate.layers.cells import GRUCell, LSTMCell, RecurrentCell, RNNCell
from glassgate.layers.drop_in import GRU, LSTM, RNN
from glassgate.layers.stack import Recurrent, changed_options

NAMESAKES: dict[type[nn.Module], type[nn.Module]] = {
    nn.RNN: RNN,
    nn.GRU: GRU,
    nn.LSTM: LSTM,
    nn.RNNCell: RNNCell,
    nn.GRUCell: GRUCell,
    nn.LSTMCell: LSTMCell,
}
"""The class of this library for each recurrent class of `torch.nn`."""
_TO_TORCH = {ours: theirs for theirs, ours in NAMESAKES.items()}
_NOT_COPIED = ("_compiled_call_impl",)
"""Attributes that are not copied to the new layer."""
_COMMON_OPTIONS = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
"""The options that the layers of both libraries have, apart from `input_size` and `hidden_size`."""


def convert(model: nn.Module, *, verbose: bool = False) -> nn.Module:
    """Replace the `torch.nn` layers RNN, GRU, LSTM and their cells in a model by those of this library, in place.

    The new layers have the same parameter objects, so optimisers stay valid. They also have the hooks, buffers,
    submodules and attributes that were attached to the old layers. These layers are kept:

    - subclasses of the layers of `torch.nn`
    - layers with parametrized weights
    - layers with an attached attribute whose name the new layer itself uses

    Args:
        model: any module.
        verbose: whether to print a line for each recurrent module: replaced, or kept with the reason.

    Returns:
        the model, or the new layer if the model is itself a layer.

    Raises:
        TypeError: `model` is not a module.

    Example:
        >>> import torch, glassgate as gg
        >>> class Custom(torch.nn.LSTM):
        ...     pass
        >>> model = gg.convert(torch.nn.Sequential(torch.nn.LSTM(3, 4), Custom(4, 4)), verbose=True)
        0: torch.nn.LSTM(3, 4) replaced
        1: Custom(4, 4) kept: a subclass of torch.nn.LSTM, whose own code the new layer would not run
        >>> model
        Sequential(
          (0): LSTM(3, 4)
          (1): Custom(4, 4)
        )
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert: model must be a torch.nn.Module, got {description(model)}")
    recurrent = [named for named in model.named_modules(remove_duplicate=False) if _is_recurrent(named[1])]
    converted, counterparts = _swap(model, _replacement)
    for name, module in recurrent if verbose else ():
        result = "replaced" if module in counterparts else f"kept: {_reason_to_keep(module)}"
        print(f"{name or 'the model'}: {_repr_with_library(module)} {result}")
    return converted


def restore(model: nn.Module) -> nn.Module:
    """Replace every layer of glassgate in a model by its namesake in `torch.nn`, in place.

    Args:
        model: any module.

    Returns:
        the model, or the new layer if the model is itself a layer.

    Raises:
        ValueError: a layer uses a feature that `torch.nn` lacks, or has an attached attribute whose name the layer of
            `torch.nn` itself uses. The model is then unchanged.

    Example:
        >>> import torch, glassgate as gg
        >>> gg.restore(gg.convert(torch.nn.LSTM(3, 4)))
        LSTM(3, 4)
    """
    for name, module in model.named_modules():
        if not isinstance(module, Recurrent | RecurrentCell):
            continue
        message = f"restore: {name or 'the model'} cannot become a layer of torch.nn, which"
        if feature := _missing_feature(module):
            raise ValueError(f"{message} lacks {feature}")
        if attribute := _conflicting_name(module, _TO_TORCH[type(module)]):
            raise ValueError(f"{message} itself uses the name of the attribute {attribute!r}; rename this attribute")
    return _swap(model, lambda m: _counterpart(m, _TO_TORCH[type(m)]) if type(m) in _TO_TORCH else None)[0]


def description(value: object) -> str:
    """Return the end of an error message: the class of a value that is not a layer of this library, and a remedy."""
    if isinstance(value, type):
        return f"the class {value.__name__}; create an object of it"
    name = type(value).__name__
    if isinstance(value, nn.Module) and any(type(module) in NAMESAKES for module in value.modules()):
        library = "torch.nn." if type(value) in NAMESAKES else ""
        return f"{library}{name}; replace the layers of torch.nn by those of glassgate: gg.convert(model)"
    return name


def _missing_feature(module: Recurrent | RecurrentCell) -> str | None:
    """Return a feature that a layer has and `torch.nn` lacks, or None."""
    if type(module) not in _TO_TORCH:
        return f"{type(module).__name__} with the cell {type(module.cell).__name__}"
    if isinstance(module, RecurrentCell):
        return None
    if module.proj_size and not isinstance(module, LSTM):
        return f"proj_size for {type(module).__name__}"
    if type(module.cell) is not module.glassgate.default_cell:
        return f"the cell {type(module.cell).__name__}"
    if not isinstance(module.hidden_size, int):
        return f"hidden_size={module.hidden_size!r}"
    for option, value in changed_options(module).items():
        if option not in _COMMON_OPTIONS:
            return f"{option}={value!r}"
    return None


def _replacement(module: nn.Module) -> nn.Module | None:
    """Return the layer of this library that replaces a module, or None if the module is kept."""
    namesake = NAMESAKES.get(type(module))
    return None if namesake is None or _conflicting_name(module, namesake) else _counterpart(module, namesake)


def _attached_attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes that were attached to a layer after its construction."""
    defaults = vars(type(module)(1, 1, device="meta")).keys()
    return {name: value for name, value in vars(module).items() if name not in defaults and name not in _NOT_COPIED}


def _conflicting_name(module: nn.Module, namesake: type[nn.Module]) -> str | None:
    """Return the name of an attribute attached to a layer, if the namesake also uses this name, or None."""
    new = namesake(1, 1, device="meta")
    used = set(dir(new)) - set(new._parameters)
    present = {*_attached_attributes(module), *module._parameters, *module._buffers, *module._modules}
    return min(used & present, default=None)


def _counterpart(module: nn.Module, namesake: type[nn.Module]) -> nn.Module:
    """Create a layer of the other library with the same parameter objects, mode, hooks and attached attributes."""
    options: dict[str, Any] = {name: value for name in _COMMON_OPTIONS if (value := getattr(module, name, None))}
    options |= {"bias": bool(module.bias), "device": "meta"}
    if hasattr(module, "nonlinearity"):
        options["nonlinearity"] = module.nonlinearity
    dropout = options.pop("dropout", 0.0)
    counterpart = namesake(module.input_size, module.hidden_size, **options)
    if dropout:
        counterpart.dropout = dropout  # the constructor would warn again about dropout with a single layer
    for name in list(counterpart._parameters):
        if name not in module._parameters:  # a hook computes this weight, such as the hook of `weight_norm`
            delattr(counterpart, name)
    for name, value in {**module._parameters, **_attached_attributes(module)}.items():
        setattr(counterpart, name, value)
    for name, value in vars(module).items():
        if "_hook" in name or name in ("_buffers", "_non_persistent_buffers_set", "_modules"):
            vars(counterpart)[name] = value  # the same dict, so that a handle still removes its hook
    hooks: dict[int, Any] = counterpart._load_state_dict_pre_hooks
    for key, hook in hooks.items():
        if getattr(hook, "with_module", False):
            hooks[key] = type(hook)(hook.hook, counterpart)
    counterpart.training = module.training
    return counterpart


def _is_quantised(module: nn.Module) -> bool:
    """Return whether this is a quantised recurrent module of torch, without importing torch's quantisation."""
    return type(module).__module__.startswith("torch.ao.nn.quant") and hasattr(module, "hidden_size")


def _is_recurrent(module: nn.Module) -> bool:
    """Return whether a module is a recurrent layer or cell of either library."""
    return isinstance(module, nn.RNNBase | nn.RNNCellBase | Recurrent | RecurrentCell) or _is_quantised(module)


def _repr_with_library(module: nn.Module) -> str:
    """Return the repr of a recurrent module, with the prefix "torch.nn." for layers of torch."""
    library = "torch.nn." if type(module) in NAMESAKES else ""
    return f"{library}{type(module).__name__}({module.extra_repr()})"


def _reason_to_keep(module: nn.Module) -> str:
    """Return the reason why `convert` keeps a recurrent module."""
    if isinstance(module, Recurrent | RecurrentCell):
        return "already a layer of glassgate"
    if _is_quantised(module):
        return "a quantised module; convert the model before it is quantised, and see gg.freeze for int8"
    if is_parametrized(module):
        return "its weights are parametrized; see torch.nn.utils.parametrize.remove_parametrizations"
    if type(module) in NAMESAKES:
        name = _conflicting_name(module, NAMESAKES[type(module)])
        return f"its attribute {name!r} has a name that the new layer itself uses"
    base = next(parent for parent in type(module).__mro__ if parent in NAMESAKES)
    return f"a subclass of torch.nn.{base.__name__}, whose own code the new layer would not run"


def _swap(
    model: nn.Module, counterpart_of: Callable[[nn.Module], nn.Module | None]
) -> tuple[nn.Module, dict[nn.Module, nn.Module]]:
    """Replace modules by their counterparts. A module that is used twice is replaced by one object.

    Args:
        model: the model.
        counterpart_of: returns the counterpart of a module, or None for a module that is kept.

    Returns:
        the model, and the counterparts of its modules.
    """
    with torch.no_grad():
        counterparts = {
            module: counterpart for module in model.modules() if (counterpart := counterpart_of(module)) is not None
        }
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in counterparts:
                parent._modules[name] = counterparts[child]
    return counterparts.get(model, model), counterparts
