"""Hypothesis generates the source code of cells that declare axes: values of any shape, at any position."""

from typing import Any

from hypothesis import strategies as st

from tests.engines.fuzz.writing import Written

ONE = (
    *("torch.tanh({})", "torch.sigmoid({})", "torch.relu({})", "0.5 * {}", "-{}", "F.softplus({})", "{}.abs()"),
    *("torch.where({} > 0.1, {}, -0.25)", "({} > 0) * {}", "torch.sin({})", "{}.clamp(-0.5, 0.8)"),
)
TWO = ("{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.where({0} > {1}, {1}, 0.5 * {0})")
SHAPES = {
    "B": ("head",), "K": ("head", "key"), "V": ("head", "value"), "M": ("head", "key", "value"),
    "T": ("head", "key", "value", "plane"), "C": ("context",), "U": ("units",),
}  # fmt: skip
FROM = {
    "B": ("{K}.sum(-1)", "{V}.mean(-1)", "{V}.amax(-1)", "{K}.logsumexp(-1)", "{M}.sum((-1, -2))", "{K}[..., 0]",
          "{B}.cumsum(-1)", "{C} @ p.of_heads", "{B}.roll(1, -1)", "{B} * p.scale"),
    "K": ("{K} * {B}[..., None]", "{M}.sum(-1)", "{M}.amax(-1)", "({M} @ {V}[..., None])[..., 0]", "{K}.softmax(-1)",
          "{K}.flip(-1)", "{K}.cumsum(-1)", "torch.cat([{K}[..., 1:], {K}[..., :1]], -1)", "{M}[..., 1]",
          "{K} - {K}.mean(1, keepdim=True)", "{K} + p.bonus", "{K} @ p.turn.mT", "F.normalize({K}, dim=-1)"),
    "V": ("torch.einsum('nhk,nhkv->nhv', {K}, {M})", "{V} * {B}[..., None]", "{M}.sum(-2)", "{M}.amax(-2)",
          "{V}.roll(2, -1)", "{V}.flatten(1).softmax(-1).unflatten(1, (2, 3))", "{K} @ p.wide", "{V}.softmax(1)",
          "torch.cat({V}.split([1, 2], -1)[::-1], -1)", "{T}.sum((2, 4))", "{M}[:, :, 0]", "{V}.cumsum(1)",
          "{U}.unflatten(1, (2, 3))"),
    "M": ("{K}[..., None] * {V}[..., None, :]", "{M} * {B}[..., None, None]", "{K}[..., None] * {M}", "{T}.mean(-1)",
          "{M}.softmax(-2)", "{M}.roll(1, -2)", "{T}.amax(-1)", "{M} * p.wide", "{T}[..., 1]", "{M}.cumsum(-2)",
          "torch.stack({M}.unbind(2), 2)", "{M} - {M}.mean(-1, keepdim=True)", "{M}.flip(-1)"),
    "T": ("{M}[..., None] * p.plane", "{T} * {V}[:, :, None, :, None]", "{T}.roll(1, -1)", "{T} + {K}[..., None, None]",
          "torch.cat([{T}[..., 1:], {M}[..., None]], -1)"),
    "C": ("{C} * {B}.sum(-1, keepdim=True)", "{C}.cumsum(-1)", "{V}.flatten(1) @ p.mix.mT", "{C} @ p.square.mT",
          "{C} + {B}.flatten(1).sum(-1, keepdim=True)"),
    "U": ("{V}.flatten(1)", "{U} * {B}.sum(-1, keepdim=True)", "{U}.roll(1, -1)", "{U} - {U}.mean(-1, keepdim=True)"),
}  # fmt: skip
PARAMETERS = {
    "bonus": ("key",), "wide": ("key", "value"), "turn": ("key", "key"), "plane": ("plane",), "scale": (),
    "mix": ("context", 6), "square": ("context", "context"), "of_heads": ("context", "head"),
}  # fmt: skip


@st.composite
def array_cells(draw: Any) -> Written:
    """Return a cell with states and gates of several shapes, and the form of a call."""
    kinds = [kind for kind in "BKMTC" if draw(st.booleans())]
    recurrent, has_input, proj_size = draw(st.booleans()), draw(st.booleans()), draw(st.integers(-10, 5))
    projected = proj_size > 0
    states = {"h": "U" if projected else "V", **{f"s{kind}": kind for kind in kinds}}
    gates = {"v": "V", "k": "K", "b": "B", "c": "C"}
    known: dict[str, list[str]] = {kind: [] for kind in SHAPES}
    for name, kind in states.items():
        known[kind] += [] if projected and name == "h" else [f"s.{name}"]
    for name, kind in gates.items():
        known[kind].append(f"a.{name}")
    known["M"].append("(a.k[..., None] * a.v[..., None, :])")
    known["T"].append("(a.k[..., None, None] * a.v[:, :, None, :, None] * p.plane)")
    known["U"].append("a.v.flatten(1)")
    if projected:
        known["B"].append("(s.h.sum(-1, keepdim=True) * a.b)")
    if recurrent:
        known["K"].append("a.hh(torch.tanh(s.h)).k")
    if has_input:
        known["B"].append("(a.input.extra[:, None] * a.b)")
    lines = []
    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from("VKMTBC" + "U" * projected))
        form = draw(st.sampled_from((*FROM[kind] * 2, *ONE, *TWO)))

        def pick(own: str) -> str:
            return draw(st.sampled_from(known[own][-3:] + known[own][:1]))

        if form in ONE or form in TWO:
            count = form.count("{}") or 2
            text = form.format(*([pick(kind)] * count if form in ONE else [pick(kind) for _ in range(count)]))
        else:
            text = form.format(**{own: pick(own) for own in SHAPES})
        lines.append(f"v{number} = torch.tanh({text})" if draw(st.booleans()) else f"v{number} = 0.5 * ({text})")
        known[kind].append(f"v{number}")
    results = [f"0.5 * s.{name} + {draw(st.sampled_from(known[kind][-2:]))}" for name, kind in states.items()]
    results[0] = draw(st.sampled_from(known["U"])) if projected else results[0]
    declared = {name: SHAPES[kind] for name, kind in states.items()}
    body = "".join(f"        {line}\n" for line in lines)
    source = (
        f"class Written(gg.Cell):\n    gates = { ({name: SHAPES[kind] for name, kind in gates.items()}) }\n"
        f"    state = {declared}\n    recurrent = {recurrent}\n    head = 2\n"
        f"    key, value, plane, context = {draw(st.sampled_from([(2, 3, 2, 5), (5, 3, 3, 2)]))}\n"
        + ("    inputs = {'x': ('features',), 'extra': ()}\n" if has_input else "")
        + f"    parameters = {{name: gg.Parameter(axes=axes) for name, axes in {PARAMETERS}.items()}}\n\n"
        + f"    def step(self, a, s, p):\n{body}        return {', '.join(results)}\n"
    )
    options = {"input_size": 3, "hidden_size": 6, "bidirectional": draw(st.booleans())}
    options |= {"proj_size": proj_size} if projected else {}
    # ONNX Runtime would store the rate, a factor of the projection, in float32.
    if draw(st.integers(0, 3)) == 0 and not projected:
        options["zoneout"] = {"h": 0.3}
    L, N = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lengths = draw(st.none() | st.lists(st.integers(0, L), min_size=N, max_size=N).map(tuple))
    return Written(source, options, L, N, lengths, draw(st.booleans()), draw(st.integers(0, 99)))
