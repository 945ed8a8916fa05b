"""Malformed calls of every entry point, compared with `torch.nn`.

`python -m tests.layers.malformed GRUCell -fake` prints the faults of the cases whose texts contain "GRUCell" and not
"fake". The process may crash, so tests run it in a process of its own, which prints each case before its calls.
"""

import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glassgate as gg
from tests.cases import STATES, STOCK

H_IN, H = 3, 4
Outcome = Exception | list[Tensor]


class Entry(NamedTuple):
    """An entry point of Glassgate and the same computation by `torch.nn`. Both take the input and `hx`."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arguments: dict[str, Tensor]
    """The input and the states of a correct call."""
    modules: tuple[nn.Module, ...] = ()
    """The two modules, if the call reads their parameters."""


def entries() -> dict[str, Callable[[], Entry]]:
    """The entry points by name. Each call of an item makes new modules."""
    made: dict[str, Callable[[], Entry]] = {}
    for kind, N, hx in product(STOCK, (4, 1, None), (True, False)):
        made[f"{kind}Cell N={N} hx={hx}"] = lambda k=kind, n=N, hx=hx: _cell(k, n, hx)
    for kind, form, hx in product(STOCK, _FORMS, (True, False)):
        for family in (_layer, _session, _functional):
            if family is _functional and (form not in ("padded", "one row", "unbatched") or not hx):
                continue  # without hx, the final states have no axis for layers
            made[f"{family.__name__[1:]} {kind} {form} hx={hx}"] = lambda g=family, k=kind, f=form, hx=hx: g(k, f, hx)
    for kind, N in product(STOCK, (1, 3)):
        made[f"stream {kind} N={N}"] = lambda k=kind, n=N: _stream(k, n)
        made[f"stream block {kind} N={N}"] = lambda k=kind, n=N: _stream(k, n, 2)
    return made


_FORMS: dict[str, tuple[int, int | None, dict[str, Any]]] = {
    "padded": (5, 2, {}),
    "one row": (1, 1, {}),
    "no grad": (5, 2, {}),
    "unbatched": (5, None, {}),
    "batch first": (5, 2, {"batch_first": True}),
    "bidirectional": (5, 2, {"bidirectional": True}),
    "two layers": (3, 2, {"num_layers": 2}),
    "packed": (5, 2, {}),
}
"""For each form of a layer's call: L, N (None without batch) and the options of the layer."""


def _states(kind: str, lead: tuple[int, ...], hx: bool) -> dict[str, Tensor]:
    return {name: torch.randn(*lead, H) for name in STATES[kind]} if hx else {}


def _cell(kind: str, N: int | None, hx: bool) -> Entry:
    stock, own = getattr(nn, f"{kind}Cell")(H_IN, H), getattr(gg, f"{kind}Cell")(H_IN, H)
    own.load_state_dict(stock.state_dict())
    lead = () if N is None else (N,)
    return Entry(own, stock, {"input": torch.randn(*lead, H_IN), **_states(kind, lead, hx)}, (own, stock))


def _layer(kind: str, form: str, hx: bool) -> Entry:
    L, N, options = _FORMS[form]
    stock, own = STOCK[kind](H_IN, H, **options), getattr(gg, kind)(H_IN, H, **options)
    own.load_state_dict(stock.state_dict())
    lead = (L,) if N is None else (N, L) if "batch_first" in options else (L, N)
    parts = stock.num_layers * (1 + stock.bidirectional)
    arguments = {"input": torch.randn(*lead, H_IN), **_states(kind, (parts, *lead[:0], *((N,) if N else ())), hx)}
    calls: list[Callable[..., Any]] = [own, stock]
    if form == "no grad":
        calls = [torch.no_grad()(call) for call in calls]
    if form == "packed":
        packed = pack_padded_sequence(arguments["input"], torch.tensor([5, 3]))
        arguments["input"] = packed.data
        calls = [lambda data, *hx, call=call: call(PackedSequence(data, packed.batch_sizes), *hx) for call in calls]
    return Entry(*calls, arguments, (own, stock))


def _session(kind: str, form: str, hx: bool) -> Entry:
    own, stock = _layer(kind, form, hx).modules
    session, entry = gg.freeze(own.eval()), _layer(kind, form, hx)
    if form != "packed":
        return Entry(session, stock.eval(), entry.arguments)
    sizes = pack_padded_sequence(torch.zeros(5, 2, H_IN), torch.tensor([5, 3])).batch_sizes
    calls = [lambda data, *hx, call=c: call(PackedSequence(data, sizes), *hx) for c in (session, stock.eval())]
    return Entry(*calls, entry.arguments)


def _functional(kind: str, form: str, hx: bool) -> Entry:
    _, stock, arguments, _ = _layer(kind, form, hx)
    function, weights = getattr(gg.functional, kind.lower()), [*stock.parameters()]
    return Entry(lambda input, hx=None: function(input, hx, *weights), stock, arguments)


def _stream(kind: str, N: int, steps: int = 0) -> Entry:
    own, stock = _layer(kind, "padded", False).modules
    stream = own.stream(N)

    def ours(input: Any) -> Tensor:
        stream.reset()
        return (stream.run(input) if steps else stream.step(input)).clone()

    def theirs(input: Any) -> Tensor:
        return stock(input)[0] if steps else stock(input[None])[0][0]

    return Entry(ours, theirs, {"input": torch.randn(*(steps,) * bool(steps), N, H_IN)})


class Subclass(Tensor):
    """A subclass of Tensor that overrides nothing."""


Pair = namedtuple("Pair", "h c")


def _freed(tensor: Tensor, offset: int = 0, kept_bytes: int = 0) -> Tensor:
    whole = torch.zeros(offset + tensor.numel())
    view = whole[offset:].view(tensor.shape)
    whole.untyped_storage().resize_(kept_bytes)
    return view


def _fake(tensor: Tensor) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second

    return FakeTensorMode(allow_non_fake_inputs=True).from_tensor(tensor)


def _flattened(tensor: Tensor) -> Tensor:
    if tensor.dim() == 1:
        raise IndexError("this tensor is flat")
    return tensor.flatten()


def _resized(axis: int, change: Callable[[int], int]) -> Callable[[Tensor], Tensor]:
    def damage(tensor: Tensor) -> Tensor:
        shape = [*tensor.shape]
        shape[axis] = change(shape[axis])  # IndexError: the tensor does not have this axis
        return torch.randn(shape)

    return damage


AXES: dict[str, Callable[[Tensor], Any]] = {
    **{f"{k} axes before": lambda v, k=k: v[(None,) * k] for k in (1, 2, 3)},
    **{f"{k} axes after": lambda v, k=k: v[(..., *(None,) * k)] for k in (1, 2, 3)},
    **{f"{k} wide axes": lambda v, k=k: torch.randn(*v.shape, *(v.shape[-1],) * k) for k in (1, 2, 3)},
    "an axis less": lambda v: v[0],
    "one axis": _flattened,
    "no axes": Tensor.sum,
}
SIZES: dict[str, Callable[[Tensor], Any]] = {
    f"axis {axis} {word}": _resized(axis, change)
    for axis in range(3)
    for word, change in {
        "shorter": lambda n: n - 1,
        "longer": lambda n: n + 1,
        "empty": lambda n: 0,
        "one": lambda n: 1,
    }.items()
}
_OTHER_LAYERS = {"axis 0 shorter", "axis 0 longer", "axis 0 empty"}
"""Damages that change the number of layers of one state."""
DTYPES: dict[str, Callable[[Tensor], Any]] = {
    str(dtype): lambda v, d=dtype: v.to(d)
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
}
STORAGE: dict[str, Callable[[Tensor], Any]] = {
    "transposed": lambda v: v.transpose(0, -1).contiguous().transpose(0, -1),
    "strided": lambda v: torch.stack([v, v], -1)[..., 0],
    "expanded": lambda v: v[..., :1].expand(v.shape),
    "overlapping": lambda v: torch.randn(v.numel() + 8).as_strided(v.shape, (1,) * v.dim()),
    "negated": lambda v: torch.complex(v, -v).conj().imag,
    "negated, one element": lambda v: torch.complex(v, -v).conj().imag.as_strided((1,) * v.dim(), (2,) * v.dim()),
    "needs a gradient": lambda v: v.clone().requires_grad_(),
    "parameter": nn.Parameter,
    "subclass": lambda v: v.as_subclass(Subclass),
}
NO_MEMORY: dict[str, Callable[[Tensor], Any]] = {
    "freed": _freed,
    "freed, with an offset": lambda v: _freed(v, 100),
}

NOT_DENSE: dict[str, Callable[[Tensor], Any]] = {
    "meta": lambda v: v.to("meta"),
    "fake": lambda v: _fake(v),
    "fake, with an offset": lambda v: _fake(torch.cat([v, v]))[len(v) :],
    "coo": Tensor.to_sparse,
    "csr": Tensor.to_sparse_csr,
    "mkldnn": Tensor.to_mkldnn,
    "quantized": lambda v: torch.quantize_per_tensor(v, 0.1, 0, torch.quint8),
    "nested": lambda v: torch.nested.nested_tensor([*v]),
}
OBJECTS: dict[str, Callable[[Tensor], Any]] = {
    "list": Tensor.tolist,
    "array": Tensor.numpy,
    "reversed array": lambda v: v.numpy()[::-1],
    "tuple": lambda v: (v,),
    "list of tensors": lambda v: [v],
    "number": lambda v: 1.0,
    "text": lambda v: "text",
    "dict": lambda v: {},
}
ARGUMENTS = {"unchanged": lambda v: v, **AXES, **SIZES, **DTYPES, **STORAGE, **NO_MEMORY, **NOT_DENSE, **OBJECTS}
"""Functions that damage an argument or change how it is stored, by name."""
PARAMETERS = {**AXES, **SIZES, **DTYPES, **NO_MEMORY} | {
    name: {**STORAGE, **NOT_DENSE}[name] for name in ("transposed", "expanded", "negated", "meta", "coo")
}
HX: dict[str, Callable[[tuple[Tensor, ...]], Any]] = {
    "too short": lambda states: states[1:],
    "empty": lambda states: (),
    "nested": lambda states: (states,),
    "named": lambda states: Pair(*states) if len(states) > 1 else (states[0],),
    "text": lambda states: "text",
    "of None": lambda states: (None,) * len(states),
    "3 axes more": lambda states: tuple(torch.randn(*v.shape, *(H,) * 3) for v in states),
}
"""Functions that damage the states of a call together."""

_OWN_ERRORS = TypeError, gg.ShapeError
STRICTER = {*DTYPES, *NOT_DENSE, *SIZES, *AXES}
"""Damages at which some functions of torch broadcast, convert or read other memory, and Glassgate raises an error."""


def cases(texts: list[str]) -> Iterator[tuple[str, Callable[[], Entry], str, str]]:
    """The cases that contain one of the texts, and none of those after a minus sign.

    A case is an entry point, the damaged argument or parameter, and the damage.
    """
    excluded = [text[1:] for text in texts if text.startswith("-")]
    included = [text for text in texts if not text.startswith("-")]
    for name, make in entries().items():
        if not any(part.partition(":")[0] in name for part in included):
            continue
        entry = make()
        damages = [(argument, damage) for argument in entry.arguments for damage in ARGUMENTS]
        damages += [("hx", damage) for damage in HX if len(entry.arguments) > 1]
        if "functional" in name:  # here, states without the axis for layers are correct
            damages = [(argument, damage) for argument, damage in damages if damage not in ("an axis less", "one axis")]
        if entry.modules:
            names = [name for name, _ in entry.modules[0].named_parameters()]
            damages += [(parameter, damage) for parameter in names for damage in PARAMETERS]
        for argument, damage in damages:
            text = f"{name}: {argument} {damage}"
            if any(part in text for part in included) and not any(part in text for part in excluded):
                yield name, make, argument, damage


def outcomes(make: Callable[[], Entry], argument: str, damage: str, own: bool, calls: int) -> list[Outcome]:
    """The outcomes of two equal malformed calls, after a number of correct calls. Empty if the damage is impossible."""
    torch.manual_seed(0)
    entry = make()
    call, arguments = entry.ours if own else entry.theirs, entry.arguments
    states = tuple(arguments.values())[1:]
    hx = [states if len(states) > 1 else states[0]] if states else []
    for _ in range(calls):
        call(arguments["input"], *hx)
    torch.manual_seed(1)
    try:
        if argument == "hx":
            hx = [HX[damage](states)]
        elif argument in arguments:
            damaged = {**arguments, argument: ARGUMENTS[damage](arguments[argument])}
            arguments, states = damaged, tuple(damaged.values())[1:]
            hx = [states if len(states) > 1 else states[0]] if states else []
        else:
            module = entry.modules[not own]
            value = PARAMETERS[damage](getattr(module, argument).detach())
            module._parameters[argument] = nn.Parameter(value, requires_grad=False)
    except (IndexError, RuntimeError, TypeError):
        return []
    return [outcome(call, arguments["input"], *hx) for _ in range(2)]


def outcome(call: Callable[..., Any], *arguments: Any) -> Outcome:
    """The results of a call as a flat list, or its exception."""
    try:
        return _flat(call(*arguments))
    except Exception as error:
        return error


def _flat(result: Any) -> list[Tensor]:
    if isinstance(result, PackedSequence):
        return [result.data.detach()]
    if isinstance(result, Tensor):
        return [result.detach()]
    return [v for part in result for v in _flat(part)]


def fault(theirs: Outcome | None, ours: Outcome, damage: str) -> str | None:
    """Compare an outcome with that of torch, which is None if torch may crash. Return the difference, or None."""
    if theirs is None:
        return None if isinstance(ours, RuntimeError) else f"expected a RuntimeError, got {_text(ours)}"
    if isinstance(ours, Exception):
        if not isinstance(theirs, Exception):
            stricter = damage in STRICTER and isinstance(ours, RuntimeError)
            return None if stricter else f"torch returns a result, and ours raises {_text(ours)}"
        lenient = isinstance(theirs, AttributeError | KeyError | TypeError | ValueError) and isinstance(
            ours, TypeError | ValueError
        )
        same = isinstance(ours, type(theirs)) or isinstance(theirs, NotImplementedError) or lenient
        return None if same else f"torch raises {_text(theirs)}, and ours raises {_text(ours)}"
    if isinstance(theirs, Exception):
        return f"torch raises {_text(theirs)}, and ours returns {_text(ours)}"
    if [v.shape for v in theirs] != [v.shape for v in ours]:
        return f"expected {_text(theirs)}, got {_text(ours)}"
    if any(v.is_meta or type(v) not in (Tensor, nn.Parameter, Subclass) for v in (*theirs, *ours)):
        return None
    off = max([(a - b).abs().max().item() for a, b in zip(theirs, ours, strict=True) if a.numel()], default=0.0)
    return None if off < 1e-5 else f"ours differs by {off}"


def _text(outcome: Outcome) -> str:
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__}: {outcome}"[:200].replace("\n", " ")
    return str([tuple(v.shape) for v in outcome])


def main(texts: list[str]) -> None:
    """Run the cases that `cases` selects. Print each case before its calls, and each fault."""
    torch.set_num_threads(1)
    count = 0
    for name, make, argument, damage in cases(texts):
        print(f"case {name}: {argument} {damage}", flush=True)
        # torch reads memory that does not exist.
        crashes = (
            damage in NO_MEMORY
            or (argument.startswith(("weight", "bias")) and damage in (*AXES, *SIZES, *NOT_DENSE))
            or ("LSTM packed" in name and argument in ("h", "c") and damage in _OTHER_LAYERS)
        )
        theirs: list[Any] = [None] if crashes else outcomes(make, argument, damage, False, 0)
        for calls in (0, 3):
            for ours in outcomes(make, argument, damage, True, calls) if theirs else ():
                if (text := fault(theirs[0], ours, damage)) is not None:
                    print(f"fault {name}, after {calls} calls: {argument} {damage}: {text}")
        count += bool(theirs)
    print(f"done: {count} cases")


if __name__ == "__main__":
    main(sys.argv[1:])
