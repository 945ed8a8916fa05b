"""Calls of layers and single-step modules inside `torch.fx.symbolic_trace`."""

from typing import Any

from torch import fx, nn


def symbolic_call(module: nn.Module, inputs: tuple[fx.Proxy, Any], options: dict[str, Any]) -> fx.Proxy:
    """Add the call to the graph as one node, as `torch.fx` does for the layers of `torch.nn`.

    Args:
        module: a `Recurrent` or a `RecurrentCell`.
        inputs: the input and `hx`.
        options: the keyword arguments of the call. Those that are None or False are left out.
    """
    input, hx = inputs
    tracer: Any = input.tracer
    arguments = {
        name: value for name, value in {"hx": hx, **options}.items() if value is not None and value is not False
    }
    proxy: fx.Proxy = tracer.create_proxy("call_module", tracer.path_of_module(module), (input,), arguments)
    return proxy
