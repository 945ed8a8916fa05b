import json
import math

import pytest
import torch

import glassgate as gg
from glassgate.claims import comparison
from glassgate.claims.cells import cell_of, hidden_size
from glassgate.claims.exponents import lyapunov_exponent
from glassgate.claims.gradients import gradient_norms
from glassgate.claims.long_lags import describe_unsolved, solved_problems
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import VERSION, Network, Trial, initial_network, is_result_of, train
from glassgate.cli.compare import command
from glassgate.tasks.errors import UserError
from tests.forked import forked


def test_a_layer_has_as_many_units_as_the_maximum_of_parameters_allows():
    for name in ("rnn", "gru", "lstm"):
        units = hidden_size(cell_of(name), 2, 2_700)
        counts = [sum(p.numel() for p in gg.Recurrent(cell_of(name), 2, n).parameters()) for n in (units, units + 1)]
        assert counts[0] <= 2_700 < counts[1]


def test_cells_with_axes_have_sizes_a_start_and_gradients():
    network = initial_network(Trial("adding", "gla(heads=2)", 12, 0, 32, 900))
    assert network.layer.hidden_size % 2 == 0
    assert sum(p.numel() for p in network.layer.parameters()) <= 900
    norms = gradient_norms(network, "adding", 5, seed=0)
    assert {name: len(each) for name, each in norms.items()} == dict.fromkeys(network.layer.cell.state, 6)
    assert all(type(norm) is float for each in norms.values() for norm in each)


def test_gradient_norms_equal_autograd_through_a_loop():
    torch.manual_seed(0)
    network = Network(gg.cells.LSTM(), PROBLEMS["adding"], 5)
    measured_norms = gradient_norms(network, "adding", 12, seed=1)
    batch = PROBLEMS["adding"].make(13, 32, torch.Generator().manual_seed(1))
    torch_cell = torch.nn.LSTMCell(2, 5)
    torch_cell.load_state_dict({name.removesuffix("_l0"): value for name, value in network.layer.state_dict().items()})
    norms = torch.zeros(13)
    for n, length in enumerate(batch.lengths.tolist()):
        h = c = torch.zeros(1, 5)
        states, forgets, cells = [], [], []
        for step in range(length):
            x = batch.inputs[step, n : n + 1]
            gates = x @ torch_cell.weight_ih.T + torch_cell.bias_ih + h @ torch_cell.weight_hh.T + torch_cell.bias_hh
            forgets.append(torch.sigmoid(gates[0, 5:10]).detach())
            h, c = torch_cell(x, (h, c))
            h.retain_grad(), c.retain_grad()
            states.append(h), cells.append(c)
        loss = (network.answer(h)[0, 0] - batch.targets[n]) ** 2 / 32
        loss.backward()
        norms += torch.stack([states[length - 1 - k].grad.norm() for k in range(13)]) / 32
        if n == 0:
            first_own_path = [
                (torch.stack(forgets[length - k :] or [torch.ones(5)]).prod(0) * cells[-1].grad[0]).norm().item()
                for k in range(13)
            ]
    assert measured_norms["h"] == pytest.approx(norms.tolist(), rel=1e-4)
    assert len(first_own_path) == len(measured_norms["own_path"])
    assert measured_norms["own_path"][0] == pytest.approx(measured_norms["c"][0], rel=1e-6)
    assert all(a > b for a, b in zip(measured_norms["own_path"], measured_norms["own_path"][1:], strict=False))


def test_a_problem_is_solved_after_enough_consecutive_correct_answers(monkeypatch):
    monkeypatch.setattr("glassgate.claims.trial.CONSECUTIVE", 64)
    result = train(Trial("noise-free", "gru", 10, 0, 6_400, 900))
    assert 64 <= result["sequences_until_solved"] < 6_400
    assert result["wrong_of_2560"] < 256
    assert train(Trial("noise-free", "gru", 10, 0, 64, 900))["sequences_until_solved"] is None


def test_a_problem_with_allowed_errors_is_solved_earlier(monkeypatch):
    monkeypatch.setattr("glassgate.claims.trial.CONSECUTIVE", 64)
    trial = Trial("noise-free", "gru", 10, 0, 6_400, 900)
    strict = train(trial)["sequences_until_solved"]
    lenient = PROBLEMS["noise-free"]._replace(misses=32)
    monkeypatch.setitem(PROBLEMS, "noise-free", lenient)
    assert train(trial)["sequences_until_solved"] < strict


def test_the_exponent_of_a_cell_with_constant_forget_gate_is_the_logarithm_of_that_gate():
    network = Network(gg.cells.JANET(), PROBLEMS["adding"], 4)
    with torch.no_grad():
        for weight in network.layer.parameters():
            weight.zero_()
        network.layer.bias_ih_l0[:4] = 3.0  # f = sigmoid(3) at every step
    measured = lyapunov_exponent(network, "adding", 30, seed=0)
    assert measured["exponent"] == pytest.approx(torch.sigmoid(torch.tensor(3.0)).log().item(), abs=1e-6)
    assert measured["low"] == pytest.approx(measured["high"], abs=1e-6)


def test_a_training_without_progress_stops_halfway(monkeypatch):
    monkeypatch.setattr("glassgate.claims.trial.UPDATES_PER_POINT", 1)
    without_learning = train(Trial("copy", "rnn", 100, 0, 512, 200, learning_rate=0.0))
    assert without_learning["sequences_seen"] == 256
    assert without_learning["sequences_until_solved"] is None
    learning = train(Trial("noise-free", "gru", 10, 0, 3_200, 900))
    assert learning["sequences_seen"] == 3_200


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    cell_file = folder / "mine.py"
    cell_file.write_text(
        "import torch, glassgate as gg\n"
        "class Leaky(gg.Cell):\n"
        "    gates, state = ('i', 'n'), ('label', 'cell')\n"
        "    def step(self, a, s):\n"
        "        i = torch.sigmoid(a.i)\n"
        "        cell = (1 - i) * s.cell + i * torch.tanh(a.n)\n"
        "        return torch.tanh(cell), cell\n"
        "class Noisy(gg.cells.CTRNN):\n"
        "    def __init__(self):\n"
        "        super().__init__(sigma=0.1)\n"
        "not_a_cell = 3\n"
    )
    cells = f"lstm,{cell_file}:Leaky,{cell_file}:Noisy"
    words = f"--cells {cells} --problems adding,reber --lags 12 --seeds 1 --sequences 64 --parameters 200"
    words = [*words.split(), "--processes", "1", "-o", str(folder / "out")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparison, "get_context", lambda method: forked())
        command(words)
    return folder, words


def test_a_comparison_writes_its_page_pictures_and_figures(written):
    folder, _ = written
    content = json.loads((folder / "out" / "compare.json").read_text())
    cells = {row["cell"] for row in content["problems"]}
    assert cells == {"lstm", f"{folder / 'mine.py'}:Leaky", f"{folder / 'mine.py'}:Noisy"}
    assert {claim["holds"] for claim in content["claims"]} <= {True, False}
    html = (folder / "out" / "compare.html").read_text()
    assert "default-src 'none'" in html
    assert "Largest Lyapunov exponent in nats per step" in html
    trained = next(row for row in content["gradients"] if row["label"] == "lstm, trained")
    assert [each["sequences"] for each in trained["lyapunov"]] == [0, 32, 64]
    for each in (each for row in content["gradients"] for each in row["lyapunov"]):
        assert each["low"] <= each["exponent"] <= each["high"]
        assert f"{each['exponent']:+.3f}" in html
    assert html.count("<svg") == 2  # 64 sequences solve nothing: only gradients and forget gates are drawn
    assert "http://" not in html.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_a_comparison_without_solved_problems_states_this(written, capsys):
    folder, words = written
    (folder / "out" / "success.svg").write_text("of an earlier run")
    command(words)
    printed = " ".join(capsys.readouterr().out.split())
    assert "No cell solved any problem in 64 sequences. Fewest wrong answers of 2,560: " in printed
    assert "A comparison needs a longer training (--sequences) or a shorter lag (--lags)." in printed
    html = (folder / "out" / "compare.html").read_text()
    assert "No cell solved any problem in 64 sequences" in html
    assert "sequences until solved</text>" not in html
    assert sorted(path.name for path in (folder / "out").glob("*.svg")) == ["forget-bias.svg", "gradients.svg"]
    content = json.loads((folder / "out" / "compare.json").read_text())
    assert not any("solve" in claim["claim"] for claim in content["claims"])


def test_solved_problems_are_those_that_some_cell_solved():
    rows = [
        {"problem": problem, "cell": "lstm", "forget_bias": None, "solved": solved, "wrong_of_2560": [wrong]}
        for problem, solved, wrong in (("adding", 1, 3), ("reber", 0, 2_000))
    ]
    settings = comparison.Comparison(("lstm",), ("adding", "reber"), (100,), 1, 64, 200)
    assert solved_problems(rows) == ["adding"]
    assert describe_unsolved(settings, rows).startswith(f"No cell solved {PROBLEMS['reber'].title} in 64 sequences.")
    rows[1]["solved"] = 1
    assert describe_unsolved(settings, rows) == ""


def test_a_repeated_comparison_reads_finished_trials_and_writes_the_same_page(written, monkeypatch):
    folder, words = written
    before = (folder / "out" / "compare.html").read_bytes()
    monkeypatch.setattr(comparison, "train", None)
    monkeypatch.setattr(comparison, "GRADIENT_SEQUENCES", 64)
    command(words)
    assert (folder / "out" / "compare.html").read_bytes() == before


def test_cells_with_other_states_and_without_a_keeping_gate_are_compared(written):
    folder, _ = written
    reason = ":Noisy starts from gg.init.xavier_orthogonal, because long_memory: the cell must have a gate whose bias"
    html = (folder / "out" / "compare.html").read_text()
    assert reason in html
    assert ":Leaky starts from" not in html
    rows = json.loads((folder / "out" / "compare.json").read_text())["gradients"]
    keeps = {row["cell"].rpartition(":")[2]: bool(row["own_path"]) for row in rows}
    assert keeps == {"lstm": True, "Leaky": True, "Noisy": False}
    assert {state for row in rows for state in row["states"]} == {"h", "c", "label", "cell", "r", "x"}


def test_an_mgu_starts_with_gates_that_keep_the_state():
    """A lower bias of its gate keeps more."""
    layer = initial_network(Trial("adding", "mgu", 50, 0, 32, 900)).layer
    f, n = (layer.bias_ih_l0 + layer.bias_hh_l0).chunk(2)
    assert -math.log(49) <= f.min() < -2
    assert not n.any()


def test_a_process_stores_a_finished_trial_and_only_complete_results_are_read(tmp_path, monkeypatch):
    """If the main process is killed, no finished trial is lost."""
    monkeypatch.setattr(comparison, "get_context", lambda method: forked())
    trial = Trial("adding", "rnn", 10, 0, 32, 60)
    result = comparison._train_and_store(trial, tmp_path)
    reported = []
    assert comparison.run([trial], tmp_path, 1, lambda *each: reported.append(each)) == [json.loads(json.dumps(result))]
    assert [each for each, _ in reported] == [trial]
    assert is_result_of(trial, result)
    assert not is_result_of(trial, result | {"version": VERSION - 1})
    assert not is_result_of(Trial("adding", "rnn", 10, 1, 32, 60), result)
    assert not any(is_result_of(trial, {k: v for k, v in result.items() if k != name}) for name in result)
    assert not is_result_of(trial, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--cells lstn", "cell: expected a built-in cell .*got 'lstn'; did you mean lstm"),
        ("--cells {}/mine.py:Lazy", "must be a subclass of glassgate.Cell, got nothing of that name"),
        ("--cells {}/mine.py:not_a_cell", "must be a subclass of glassgate.Cell, got int not_a_cell"),
        ("--cells {}/none.py:Leaky", "no such file"),
        ("--lags 0", "--lags must be from 10"),
        ("--lags ten", "--lags must be whole numbers"),
        ("--problems add", "--problems must be among reber"),
        ("--seeds 0", "--seeds must be 1 or more"),
        ("--parameters 3", "--parameters must be"),
        ("--sequences 3", "at least one batch"),
    ],
)
def test_an_invalid_comparison_raises_an_error(written, words, message):
    with pytest.raises(UserError, match=message):
        command([*words.format(written[0]).split(), "-o", str(written[0] / "never")])
    assert not (written[0] / "never").exists()
