"""The heads equal torch.distributions, and the networks equal the equations of the papers in plain torch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import NegativeBinomial, Normal, StudentT
from torch.utils.flop_counter import FlopCounterMode

import glassgate as gg
from glassgate.tasks.forecasting import network as networks
from glassgate.tasks.forecasting.heads import Head, SharedDraws, make_head
from glassgate.tasks.forecasting.network import Forecaster, Sizes, network
from glassgate.tasks.forecasting.options import ForecastingOptions

LEVELS = [0.1, 0.5, 0.9]


def parameters(of: Head, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return random parameters of 200 steps, and their scales."""
    random = torch.Generator().manual_seed(1)
    raw = torch.randn(200, of.size, generator=random, dtype=torch.float64)
    one = torch.ones(200, dtype=torch.float64)
    return of.parameters(raw, 0.3 * one, 2 * one, scale * one), scale * one


@pytest.mark.parametrize("name", ["gaussian", "student-t", "negative-binomial"])
def test_distributions_are_those_of_torch(name: str) -> None:
    of = make_head(name, LEVELS)
    said, scale = parameters(of, 7.0)
    target = torch.randint(0, 30, (200,)).double()
    if name == "gaussian":
        same: Any = Normal(*said.unbind(-1))
        torch.testing.assert_close(of.quantiles(said, LEVELS)[:, 2], same.icdf(torch.tensor(0.9, dtype=torch.float64)))
    elif name == "student-t":
        same = StudentT(*said.unbind(-1))
    else:
        mean, shape = said.unbind(-1)
        same = NegativeBinomial(1 / shape, logits=(shape * mean).log())
        torch.testing.assert_close(same.variance, mean + shape * mean**2)
    given = target / scale if name == "negative-binomial" else target
    torch.testing.assert_close(of.loss(said, given, scale), -same.log_prob(target))
    many = said[:3, None, None].expand(3, 40_000, 1, -1)
    draws = of.sample(many, scale[:3, None, None], SharedDraws(3, 2, torch.device("cpu")))[..., 0].T
    draws = draws * scale[:3] if name == "negative-binomial" else draws
    torch.testing.assert_close(draws.mean(0), same.mean[:3], rtol=0.1, atol=0.1)
    if name == "negative-binomial":
        torch.testing.assert_close(draws.var(0), same.variance[:3], rtol=0.15, atol=0.1)
        assert (draws == draws.round()).all()


def test_errors_and_quantiles_are_those_of_numpy() -> None:
    target = torch.randn(200, dtype=torch.float64)
    for name in ("mse", "mae", "huber"):
        of = make_head(name, LEVELS)
        said, scale = parameters(of)
        away = (said[:, 0] - target).abs().numpy()
        wanted = {"mse": away**2, "mae": away, "huber": np.where(away < 1, away**2 / 2, away - 0.5)}[name]
        np.testing.assert_allclose(of.loss(said, target, scale), wanted)
    of = make_head("quantiles", LEVELS)
    said, scale = parameters(of)
    aways = [(q, (target - x).numpy()) for q, x in zip(LEVELS, said.T, strict=True)]
    losses = [2 * np.maximum(q * away, (q - 1) * away) for q, away in aways]
    np.testing.assert_allclose(of.loss(said, target, scale), np.mean(losses, 0))
    assert (of.quantiles(said, LEVELS).diff(dim=-1) >= 0).all()


def built(sizes: Sizes, **options: Any) -> tuple[Forecaster, ForecastingOptions]:
    small = {"horizon": 9, "look_back": 12, "segment": 4, "hidden_size": 10, "embedding_size": 3, "cell": "gru"}
    chosen = ForecastingOptions.from_mapping(small | {"dropout": 0.3} | options)
    torch.manual_seed(3)
    made = network(chosen, sizes, make_head(chosen.head, chosen.levels))
    return made.eval(), chosen


def batch(sizes: Sizes, rows: int = 5, length: int = 25) -> dict[str, Tensor]:
    """Return windows with more steps before them than the network reads."""
    random = torch.Generator().manual_seed(4)
    return {
        "values": torch.randn(rows, length, generator=random),
        "known": torch.randn(rows, length, sizes.known, generator=random),
        "past": torch.randn(rows, length, sizes.past, generator=random),
        "series": torch.arange(rows) % sizes.series,
        "scale": torch.ones(rows),
    }


def gru(ours: Forecaster, size: int) -> nn.GRU:
    other = nn.GRU(size, 10, batch_first=True)
    other.load_state_dict(ours.encoder.state_dict())
    return other


def test_segments_follow_the_equations_of_the_paper() -> None:
    """Lin et al. 2023, section 3: subtract the last value, segments of W, ReLU(W x + b), GRU, and for each segment of
    the horizon one step of the same GRU from the last state, on the place's half and the channel's half of a vector.
    """
    ours, _ = built(Sizes(series=2), model="segments")
    given = batch(Sizes(series=2))
    cell = gru(ours, 10)
    weights: dict[str, Tensor] = ours.state_dict()
    rows = []
    for row in range(5):
        past = given["values"][row, 4:16]
        last = past[-1]
        segments = torch.stack([past[k : k + 4] - last for k in range(0, 12, 4)])
        vectors = torch.relu(segments @ weights["embed.0.weight"].T + weights["embed.0.bias"])
        _, state = cell(vectors[None])
        forecast = []
        for segment in range(3):
            asked = torch.cat([weights["places"][segment], weights["series.weight"][row % 2]])
            _, h = cell(asked[None, None], state)
            forecast.append(h[0, 0] @ weights["segment.weight"].T + weights["segment.bias"] + last)
        rows.append(torch.cat(forecast)[:9])
    output = ours(given)
    torch.testing.assert_close(output.forecast[..., 0], torch.stack(rows))


def test_the_linear_map_of_the_past_is_added_to_the_output() -> None:
    sizes = Sizes(known=1, series=2)
    ours, _ = built(sizes, head="quantiles")
    alone, _ = built(sizes, head="quantiles", linear=False)
    given = batch(sizes)
    assert not ours.linear.weight.any()
    alone.load_state_dict({name: v for name, v in ours.state_dict().items() if name != "linear.weight"})
    torch.testing.assert_close(ours(given).forecast, alone(given).forecast, rtol=0, atol=0)
    nn.init.normal_(ours.linear.weight)
    past = given["values"][:, 4:16] - given["values"][:, 15:16]
    expected = alone(given).forecast + (past @ ours.linear.weight.T).view(5, 9, 3)
    torch.testing.assert_close(ours(given).forecast, expected)


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn", "gruv3", "layernormlstm"])
def test_shared_values_of_segments_are_computed_once(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecast and gradients are those of a sequence for each row and segment, at every depth; a row's state is
    multiplied by each layer's weights once.
    """
    sizes = Sizes(series=2, known=2, past=1)
    ours, _ = built(sizes, model="segments", cell=cell, num_layers=2)
    given = {name: v.double() if v.is_floating_point() else v for name, v in batch(sizes).items()}

    def measured() -> list[Tensor]:
        forecast = ours(given).forecast
        return [forecast, *torch.autograd.grad(forecast.square().sum(), list(ours.parameters()))]

    ours.double()
    monkeypatch.setattr(networks, "_CHUNK_ELEMENTS", 3 * 3 * 10)  # three rows of three segments of ten hidden units
    with gg.engine("reference"), FlopCounterMode(display=False) as shared:
        counts = measured()
    monkeypatch.setattr(ours, "_run_in_chunks", ours._run_as_sequences)
    with gg.engine("reference"), FlopCounterMode(display=False) as alone:
        torch.testing.assert_close(counts, measured(), rtol=1e-9, atol=1e-11)
    assert shared.get_total_flops() < alone.get_total_flops()


def test_edits_and_recordings_see_the_segments_of_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(series=2)
    ours, _ = built(sizes, model="segments")
    given, closed = batch(sizes), {"layer0.forward.z": gg.hold(0.0)}
    with gg.edit(ours.encoder, closed), gg.record(ours.encoder) as tape:
        edited = ours(given).forecast
    assert tape["layer0.forward.z"].shape[:2] == (1, 5 * 3)
    monkeypatch.setattr(ours, "_run_in_chunks", ours._run_as_sequences)
    with gg.edit(ours.encoder, closed):
        torch.testing.assert_close(ours(given).forecast, edited)
    assert (ours(given).forecast - edited).abs().max() > 0.01


def test_gamma_draws_continue_their_generators_and_leave_the_global_one() -> None:
    shape, before = torch.rand(3, 500, 4) + 2, torch.get_rng_state()
    draws = SharedDraws(3, 7, torch.device("cpu"))
    first, second = draws.gamma(shape), draws.gamma(shape)
    assert torch.get_rng_state().equal(before)
    assert SharedDraws(3, 7, torch.device("cpu")).gamma(shape).equal(first)
    assert not first.equal(second)
    torch.testing.assert_close(torch.stack([first, second]).mean((0, 2)), shape.mean(1), rtol=0.1, atol=0)
    for seed in (7, 7):
        torch.manual_seed(seed)
        assert torch.distributions.Gamma(shape[1], torch.ones(500, 4)).sample().equal(first[1])


@pytest.mark.parametrize("name", ["gaussian", "student-t"])
def test_drawn_paths_equal_those_of_a_loop(name: str) -> None:
    """The loop computes each path separately: first the past step by step, then the sampled values."""
    sizes = Sizes(known=2, series=2)
    ours, options = built(sizes, model="recursive", head=name, samples=4)
    given, cell = batch(sizes), gru(ours, 1 + 2 + 3)
    weights = ours.state_dict()
    values, known = given["values"][:, 4:], given["known"][:, 4:]
    center, vectors = values[:, 11], weights["series.weight"][given["series"]]
    draws = SharedDraws(5, options.seed, torch.device("cpu"))
    paths = torch.zeros(5, 4, 9)
    states: list[list[Tensor | None]] = [[None] * 4 for _ in range(5)]
    for step in range(1, 21):
        raw = torch.zeros(5, 4, ours.head.size)
        for row in range(5):
            for path in range(4):
                before = values[row, step - 1] if step < 13 else paths[row, path, step - 13]
                x = torch.cat([(before - center[row])[None], known[row, step], vectors[row]])
                output, states[row][path] = cell(x[None, None], states[row][path])
                raw[row, path] = output[0, 0] @ weights["step.weight"].T + weights["step.bias"]
        if step >= 12:
            one = torch.ones(5, 4, 1)
            said = ours.head.parameters(raw[:, :, None], center[:, None, None].expand(5, 4, 1), one, one)
            paths[..., step - 12] = ours.head.sample(said, one, draws)[..., 0]
    torch.testing.assert_close(ours(given).paths, paths, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ["direct", "recursive", "segments"])
@pytest.mark.parametrize("normalize", ["last", "window", "none"])
def test_a_forecast_reads_only_its_window(model: str, normalize: str) -> None:
    """The gradients of values outside of the window, and of past covariates in the horizon, are zero."""
    sizes = Sizes(known=1, past=0 if model == "recursive" else 1)
    ours, _ = built(sizes, model=model, normalize=normalize)
    given = batch(sizes)
    for name in ("values", "known", "past"):
        given[name].requires_grad_()
    output = ours(given).forecast
    assert output is not None
    output.sum().backward()
    inside = torch.zeros(25, dtype=torch.bool)
    inside[4:16] = True
    assert (given["values"].grad[:, ~inside] == 0).all()
    assert (given["values"].grad[:, inside] != 0).any(0).sum() >= 11
    if sizes.past:
        assert (given["past"].grad[:, ~inside] == 0).all()
        assert (given["past"].grad[:, inside] != 0).any()
    ahead = given["known"].grad[:, 16:, 0].abs().sum(0)
    assert (ahead > 0).all()


def test_a_covariate_of_a_step_reaches_no_step_before_it() -> None:
    ours, _ = built(Sizes(known=1), model="recursive")
    given = batch(Sizes(known=1))
    before = ours(given).forecast[..., 0]
    given["known"][:, 16 + 5] += 1
    after = ours(given).forecast[..., 0]
    assert torch.equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).all()
