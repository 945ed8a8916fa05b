"""Every number of a report against loops in plain PyTorch, from the run's weights and the page's own text alone."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from glassgate.cli import main
from glassgate.glass.data import decode_array
from glassgate.tasks import task_class
from glassgate.tasks.report.task_view import view_of
from tests.cli.test_report import SMALL, content
from tests.tasks.test_every_task import SPLITS

TEXT = "play it now stop it"
L, H = 5, 6
Values = dict[str, list[Tensor]]
MINUS, NARROW = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}"
KINDS = {**dict.fromkeys("ifo", "a gate"), "g": "a candidate", **dict.fromkeys("hc", "a state")}


class Made(NamedTuple):
    """A page, its data, and the run that it shows."""

    text: str
    data: dict[str, Any]
    task: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("numbers")
    kind = task_class("tagging")
    kind(kind.options_type.from_mapping(SMALL)).fit(SPLITS["tagging"], run=folder / "run")
    assert main(["report", str(folder / "run"), TEXT, "-o", str(folder / "page.html")]) == 0
    return Made(*content(Path(folder, "page.html")), kind.load(folder / "run"))


def unheld(name: str, step: int, value: Tensor) -> Tensor:
    return value


Hold = Callable[[str, int, Tensor], Tensor]


def read(network: Any, task: Any, hold: Hold = unheld) -> tuple[Tensor, dict[str, Values], Tensor]:
    """The input, every gate and state of each direction, and the logarithms of probabilities; by a loop over steps.

    `hold` may change a gate for all that the step makes of it, and a state as it leaves the step.
    """
    encoded = task.encode(view_of(task).example(TEXT))
    batch = {name: torch.from_numpy(encoded[name])[None] for name in ("units", "characters")}
    with torch.no_grad():
        x = torch.cat([network.embedding(batch["units"]), network.spelling(batch["characters"])], -1)[0]
    x.requires_grad_()
    every: dict[str, Values] = {}
    for label, suffix in (("layer0.forward", ""), ("layer0.reverse", "_reverse")):
        w = {k: getattr(network.encoder, f"{k}_l0{suffix}") for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        h = c = torch.zeros(H)
        of = every[label] = {name: [] for name in "ifgohc"}
        for t in reversed(range(L)) if suffix else range(L):
            a = w["weight_ih"] @ x[t] + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"]
            gates = [
                gate.sigmoid() if name != "g" else gate.tanh() for name, gate in zip("ifgo", a.chunk(4), strict=True)
            ]
            i, f, g, o = (hold(f"{label}.{name}", t, gate) for name, gate in zip("ifgo", gates, strict=True))
            new = f * c + i * g
            h, c = hold(f"{label}.h", t, o * new.tanh()), hold(f"{label}.c", t, new)
            for name, value in zip("ifgohc", (i, f, g, o, h, c), strict=True):
                if name in "hc" and value.requires_grad:
                    value.retain_grad()
                of[name].append(value)
        if suffix:
            for values in of.values():
                values.reverse()
    output = torch.cat([torch.stack(every[label]["h"]) for label in every], 1)
    return x, every, network.head(output).log_softmax(-1)


def test_gates_states_wires_and_what_follows_from_them(made: Made) -> None:
    x, every, _ = read(made.task.network, made.task)
    for part, (label, of) in zip(made.data["parts"], every.items(), strict=True):
        assert part["label"] == label
        values = {name: torch.stack(steps).detach() for name, steps in of.items()}
        before = {name: values[name].roll(-1 if part["reverse"] else 1, 0) for name in "hc"}
        for value in before.values():
            value[-1 if part["reverse"] else 0] = 0
        for name, value in values.items():
            np.testing.assert_allclose(decode_array(part["values"][name]).reshape(L, H), value, atol=1e-5)
            said = f"mean {value.mean():.3g}, standard deviation {value.std(correction=0):.3g}".replace("-", MINUS)
            assert f"{H} units over {L} steps, {KINDS[name]}: {said}." in made.text
        carried = [values["f"] * before["c"], values["i"] * values["g"], values["c"].tanh(), before["h"], before["c"]]
        wires = {name: decode_array(wire).reshape(L, -1) for name, wire in part["wires"].items()}
        np.testing.assert_allclose(wires.pop("x"), x.detach().norm(dim=-1, keepdim=True), atol=1e-4)
        assert len(wires) == len(carried)
        for wire in wires.values():
            # Wires are kept in 16 bits, which is two digits more than are shown.
            assert any(np.allclose(wire, value, atol=1e-4) for value in carried)
        f = values["f"]
        np.testing.assert_allclose(part["half_life"]["c"], np.log(0.5) / f.log().mean(0), rtol=1e-5)
        for name in "ifo":
            np.testing.assert_allclose(part["saturation"][name][0], (values[name] < 0.1).float().mean(0), atol=1e-5)
            np.testing.assert_allclose(part["saturation"][name][1], (values[name] > 0.9).float().mean(0), atol=1e-5)
        memory = part["memory"]["c"]
        for place, k in enumerate(memory["steps"]):
            left = torch.stack([f[t : t + k].prod(0) for t in range(L - k + 1)]).double().flatten()
            for name, level in (("median", 0.5), ("low", 0.1), ("high", 0.9)):
                assert memory[name][place] == pytest.approx(float(left.quantile(level)), abs=1e-5)


def test_which_unit_follows_what(made: Made) -> None:
    _, every, _ = read(made.task.network, made.task)
    answers = np.array([best[0][0] for _, best, _ in made.data["answers"][0]])
    marks = {kind: (answers == kind).astype(float) for kind in set(answers)} if len(set(answers)) > 1 else {}
    marks["position in the sequence"] = np.arange(L, dtype=float)
    assert {row[0] for row in made.data["follows"]} <= marks.keys()
    assert made.data["follows"][-1][0] == "position in the sequence"
    for mark, direction, unit, state, correlation in made.data["follows"]:
        correlations = {
            (label, k): abs(np.corrcoef(torch.stack(of["c"]).detach()[:, k].double(), marks[mark])[0, 1])
            for label, of in every.items()
            for k in range(H)
        }
        assert state == "c"
        assert abs(correlation) == pytest.approx(correlations[direction, unit], abs=1e-5)
        assert abs(correlation) == pytest.approx(max(correlations.values()), abs=1e-5)


def test_answers_connectivity_and_gradient_flow(made: Made) -> None:
    x, every, chances = read(made.task.network, made.task)
    symbols = made.task.vocabularies["labels"].symbols
    matrix = decode_array(made.data["connections"][0]["values"]).reshape(made.data["connections"][0]["shape"])
    trained, initial = {}, {}
    for t, (step, best, target) in enumerate(made.data["answers"][0]):
        assert (step, target) == (t, None)
        assert best[0][0] == symbols[int(chances[t].argmax())]
        assert best[0][1] == pytest.approx(float(chances[t].detach().max().exp()), abs=1e-5)
        trained[t] = gradients(x, every, chances[t].max())
        assert x.grad is not None
        np.testing.assert_allclose(matrix[t], (x.grad * x).sum(-1).detach(), atol=1e-5)
    torch.manual_seed(made.task.options.seed)
    x, untrained, chances = read(made.task.build().eval(), made.task)
    for t in range(L):
        initial[t] = gradients(x, untrained, chances[t].max())
    for part in made.data["parts"]:
        label, step = part["label"], 1 if part["reverse"] else -1
        f = torch.stack(every[label]["f"]).detach()
        for name, flow in part["flow"].items():
            for place, k in enumerate(flow["lags"]):
                starts = [t for t in range(L) if 0 <= t + step * k < L]
                for row, grads in ((flow["trained"][0], trained), (flow["initial"], initial)):
                    norms = [float(grads[t][label, name][t + step * k].norm()) for t in starts]
                    assert row[place] == pytest.approx(float(np.median(norms)), abs=1e-5)
                if name == "c":
                    path = [f[[t + step * j for j in range(k)]].prod(0) * trained[t][label, name][t] for t in starts]
                    assert flow["direct_path"][place] == pytest.approx(
                        float(np.median([p.norm() for p in path])), abs=1e-5
                    )
    near = []
    for t, row in enumerate(np.abs(matrix)):
        order = sorted(range(L), key=lambda s, t=t: abs(s - t))
        within = next(n for n in range(1, L + 1) if row[order[:n]].sum() >= 0.9 * row.sum())
        near.append(abs(order[within - 1] - t))
    said = re.search(r"90\u202f% of the contributions come from within ([\d.]+) step", made.text)
    assert said is not None
    assert float(said[1]) == float(np.median(near))


def gradients(x: Tensor, every: Mapping[str, Values], target: Tensor) -> dict[tuple[str, str], Tensor]:
    """The gradient of a target that reaches each state at each step."""
    states = {(label, name): of[name] for label, of in every.items() for name in "hc"}
    x.grad = None
    for values in states.values():
        for value in values:
            value.grad = None
    target.backward(retain_graph=True)
    none = torch.zeros(H)
    return {key: torch.stack([none if v.grad is None else v.grad for v in values]) for key, values in states.items()}


def test_causes(made: Made) -> None:
    """Each part, and each window of steps, held at its mean in the loop."""
    with torch.no_grad():
        _, every, chances = read(made.task.network, made.task)
        means = {f"{label}.{name}": torch.stack(v).mean(0) for label, of in every.items() for name, v in of.items()}
        said = chances.argmax(-1)

        def lost(hold: Hold) -> tuple[float, float]:
            now = read(made.task.network, made.task, hold)[2]
            loss = (chances - now).gather(1, said[:, None]).mean()
            return float(loss), 100 * float((now.argmax(-1) != said).float().mean())

        causes = {name: numbers for name, *numbers in made.data["causes"]}
        assert {"layer0", "layer0.forward", "layer0.reverse.c", "layer0.forward.g", "layer0.reverse[4:6]"} <= set(
            causes
        )
        for name, expected in causes.items():
            whole, _, units = name.partition("[")
            first, _, stop = units.rstrip("]").partition(":")

            def hold(
                full: str, step: int, value: Tensor, whole: str = whole, first: str = first, stop: str = stop
            ) -> Tensor:
                if first and full == f"{whole}.h":
                    value = value.clone()
                    value[int(first) : int(stop)] = means[full][int(first) : int(stop)]
                states = full.startswith(f"{whole}.") and full[-1] in "hc" and not first
                return means[full] if full == whole or states else value

            np.testing.assert_allclose(lost(hold), expected[:2], atol=1e-5, err_msg=name)
        assert [each[:3] for each in made.data["windows"]] == [[0, step, step + 1] for step in range(L)]
        for _, start, stop, *expected in made.data["windows"]:
            window = range(start, stop)
            held = lost(lambda full, t, v, window=window: means[full] if full[-1] in "hc" and t in window else v)
            np.testing.assert_allclose(held, expected[:2], atol=1e-5)
            assert expected[2] <= expected[0] + 1e-5 <= expected[3] + 2e-5
    assert "points of answers kept" in made.text  # a text without labels: no answer is right or wrong


def test_cost(made: Made) -> None:
    rows = dict(re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td>", made.text))
    network = made.task.network
    layer = [p.numel() for p in network.encoder.parameters()]
    assert rows["parameters"].startswith(f"{sum(layer):,} in the recurrent layers")
    assert f"{sum(p.numel() for p in network.parameters()):,} in total" in rows["parameters"]
    products = sum(p.numel() for p in network.encoder.parameters() if p.dim() == 2)
    assert rows["multiplications per step"].startswith(f"{products:,}:")
    assert rows["multiplications on this page"] == f"{products * L / 1e6:,.2f} million for {L} steps, without padding"
    assert rows["padding"] == f"0{NARROW}% if the sequences were one padded batch"
    kept = sum(decode_array(value).size for part in made.data["parts"] for value in part["values"].values())
    assert rows["memory for gradients"].startswith(f"about {4 * kept / 1e6:.2f} MB")
    assert rows["state"] == f"{2 * 2 * H} numbers per sequence, {4 * 2 * 2 * H} bytes"
