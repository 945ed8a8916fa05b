"""Autograd functions whose calls inside transforms of torch.func take about a quarter of the usual time.

For each call of a `torch.autograd.Function` inside a transform, torch builds a class, and flattens nested containers of
arguments and results several times. This takes longer than a small kernel. Here, the class is cached, and arguments and
results must be flat.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.torch_names import functorch, top_transform


class FlatFunction(torch.autograd.Function):
    """A `torch.autograd.Function` without nested containers.

    Its arguments are tensors and constants, and its result is a tuple of tensors. A subclass defines `setup_context`,
    `backward`, `jvp`, `vmap`, and `forward` without a context, as for `torch.autograd.Function`.
    """

    @classmethod
    def apply(cls, *args: Any) -> tuple[Tensor, ...]:
        """Call the function at the innermost active transform."""
        if functorch is None:
            results: tuple[Tensor, ...] = super().apply(*args)
            return results
        args = tuple(unwrap_dead_wrappers(args))
        if top_transform() is None:
            return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]
        interpreter = functorch.retrieve_current_functorch_interpreter()
        if interpreter.key() == functorch.TransformType.Vmap:
            return _call_in_vmap(cls, interpreter, args)
        args = tuple([interpreter._cptr.lift(v) if isinstance(v, Tensor) else v for v in args])
        with functorch.enable_single_level_autograd_function():
            return _single_level_function(cls).apply(*args)


def eager_apply(function: type[FlatFunction]) -> Callable[..., tuple[Tensor, ...]]:
    """Return the method `apply` of a function without its search for transforms, for calls outside of them."""
    apply: Callable[..., tuple[Tensor, ...]] = function.apply
    return apply if functorch is None else super(torch.autograd.Function, function).apply  # type: ignore[misc]


def apply_in_operator(function: type[FlatFunction]) -> Callable[..., tuple[Tensor, ...]]:
    """Return the method `apply` of a function for the implementation of an operator.

    Inside transforms, the dispatcher of torch runs the implementation at the level of one transform.
    """
    if functorch is None or top_transform() is None:
        return function.apply

    def apply(*args: Any) -> tuple[Tensor, ...]:
        with functorch.enable_single_level_autograd_function():
            return _single_level_function(function, function.forward).apply(*args)

    return apply


def is_differentiated() -> bool:
    """Whether the caller runs inside a transform that computes gradients."""
    if functorch is None:
        return True
    active = functorch.get_interpreter_stack() or []
    return any(transform.key() == functorch.TransformType.Grad for transform in active)


def unwrap_dead_wrappers(values: Sequence[Any]) -> Sequence[Any]:
    """Replace tensors of transforms that have ended by the tensors that they wrap."""
    if functorch is None:
        return values
    return [functorch.unwrap_if_dead(v) if isinstance(v, Tensor) else v for v in values]


def _call_in_vmap(function: type[FlatFunction], interpreter: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Call a function inside a vmap. Use its method `vmap` if an argument has the batch axis of this vmap."""
    level = interpreter.level()
    pairs = [functorch._unwrap_batched(v, level) if isinstance(v, Tensor) else (v, None) for v in args]
    values, dims = zip(*pairs, strict=True)
    with interpreter.lower():
        if all(dim is None for dim in dims):
            return function.apply(*values)
        info = functorch.VmapInfo(interpreter.batch_size(), interpreter.randomness())
        results, result_dims = function.vmap(info, dims, *values)
    return tuple(
        [
            v if dim is None else functorch._add_batch_dim(v, dim, level)
            for v, dim in zip(results, result_dims, strict=True)
        ]
    )


@cache
def _single_level_function(
    function: type[FlatFunction], forward: Callable[..., tuple[Tensor, ...]] | None = None
) -> Any:
    """A variant of `function` for one level of grad or jvp.

    Args:
        function: the function.
        forward: the method `forward` of the result. By default it calls `function` at the next outer level.
    """

    def call_at_next_level(*args: Any) -> tuple[Tensor, ...]:
        interpreter = functorch.retrieve_current_functorch_interpreter()
        level = interpreter.level()
        unwrapped = [functorch._unwrap_for_grad(v, level) if isinstance(v, Tensor) else v for v in args]
        with torch.enable_grad(), functorch._set_fwd_grad_enabled(True), interpreter.lower():
            results = function.apply(*unwrapped)
        return tuple([functorch._wrap_for_grad(v, level) for v in results])

    rules = {
        "forward": staticmethod(forward or call_at_next_level),
        "setup_context": staticmethod(function.setup_context),
        "backward": staticmethod(function.backward),
        "jvp": staticmethod(function.jvp),
    }
    return type(f"{function.__name__}OfOneLevel", (functorch._SingleLevelFunction,), rules)


def pull_back(
    function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], d_values: Sequence[Tensor]
) -> tuple[Sequence[Tensor | None], Sequence[Tensor]]:
    """Return the gradients of the inputs of a function, from the gradients of its values; and the values.

    Outside of transforms, a gradient is None if autograd does not need it.
    """
    if functorch is None or top_transform() is not None:
        values, pullback, *_ = torch.func.vjp(function, *inputs)
        return pullback(tuple(d_values)), values
    create_graph = torch.is_grad_enabled()
    gradients: Iterator[Tensor] = iter(())
    with torch.enable_grad():
        leaves = [v.view_as(v) if v.requires_grad else v for v in inputs]
        values = function(*leaves)
    needed = [leaf for leaf in leaves if leaf.requires_grad]
    roots = [(v, d) for v, d in zip(values, d_values, strict=True) if v.requires_grad]
    if roots and needed:
        outputs, d_outputs = zip(*roots, strict=True)
        options = {"create_graph": create_graph, "materialize_grads": True}
        gradients = iter(torch.autograd.grad(outputs, needed, d_outputs, **options))
    d_inputs = [next(gradients, None) if leaf.requires_grad else None for leaf in leaves]
    return d_inputs, values if create_graph else [v.detach() for v in values]
