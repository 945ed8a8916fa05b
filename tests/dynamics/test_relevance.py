"""Relevance: conservation for every cell, the rules of Arras et al. written out for an LSTM, and a planted cause."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from tests.compare import noise

E, H, C = 4, 5, 3


class Reader(nn.Module):
    """Classifies token IDs by the last state of a layer."""

    def __init__(self, layer: nn.Module, out: int) -> None:
        super().__init__()
        self.embedding, self.layer, self.linear = nn.Embedding(9, E), layer, nn.Linear(out, C)
        self.dropout = nn.Dropout(0.5)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        output, final = self.layer(self.embedding(tokens), lengths=lengths)
        return self.linear(
            self.dropout(output[-1] if lengths is None else (final[0] if isinstance(final, tuple) else final)[-1])
        )


def reader(cell: gg.Cell, **options: object) -> Reader:
    torch.manual_seed(0)
    model = Reader(
        gg.Recurrent(cell, E, H, **options), options.get("proj_size") or H * (2 if options.get("bidirectional") else 1)
    )
    model.double()
    with torch.no_grad():
        for k, weight in enumerate(model.parameters()):
            weight.copy_(noise(k, *weight.shape) / 2)
    return model


TOKENS = torch.tensor([[1, 4], [5, 4], [2, 0], [7, 8], [3, 3]])
PROJECTED = {"ClippedLSTM": 2}
WITH_CONSTANTS = {"MinGRU", "MinLSTM"}
"""Cells whose equations add 0.5. The relevance of this constant belongs to no token."""


@pytest.mark.parametrize("name", sorted(set(gg.cells.__all__) - WITH_CONSTANTS))
def test_tokens_and_biases_add_up_to_the_score(name: str) -> None:
    model = reader(getattr(gg.cells, name)(), num_layers=2, proj_size=PROJECTED.get(name, 0))
    scores = model.eval()(TOKENS)[:, 1]
    with gg.engine("reference"):
        relevance = gg.dynamics.relevance(model, TOKENS, 1)
    assert torch.allclose(relevance.scores, scores, rtol=0, atol=1e-12)
    assert abs(relevance.unexplained) <= 1e-5 * scores.abs().sum()
    assert relevance.tokens.shape == TOKENS.shape
    assert torch.allclose(relevance.tokens, relevance.features.sum(-1))
    assert relevance.tokens.abs().max() > 1e-6


DECLARING = {
    "GLA": lambda: gg.cells.GLA(1, 3),
    "GatedDeltaNet": lambda: gg.cells.GatedDeltaNet(1, 3),
    "RWKV7": lambda: gg.cells.RWKV7(1, 3),
    "HyperLSTM": gg.cells.HyperLSTM,
    "LRU": gg.cells.LRU,
}
"""Cells that declare axes, without constant terms."""


@pytest.mark.parametrize("name", DECLARING)
def test_tokens_and_biases_add_up_for_cells_that_declare_axes(name: str) -> None:
    model = reader(DECLARING[name](), num_layers=2, bidirectional=True)
    scores = model.eval()(TOKENS)[:, 1]
    with gg.engine("reference"):
        relevance = gg.dynamics.relevance(model, TOKENS, 1)
    assert torch.allclose(relevance.scores, scores, rtol=0, atol=1e-12)
    assert abs(relevance.unexplained) <= 1e-5 * scores.abs().sum()
    assert relevance.tokens.abs().max() > 1e-6


def test_the_gate_of_a_matrix_memory_receives_no_relevance() -> None:
    """Keys, values and queries share the relevance of their product, and a gate that depends on the token has none."""
    layer = gg.Recurrent(gg.cells.GLA(1, 2), 3, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(noise(1, *layer.weight_ih_l0.shape))
        layer.weight_ih_l0[:-2, 0] = 0  # only the gate reads the first feature
    x = noise(2, 4, 1, 3)
    relevance = gg.dynamics.relevance(layer, x, lambda result: result[0][-1].sum(-1))
    assert relevance.features is not None
    assert relevance.features[..., 0].eq(0).all()
    assert relevance.features[..., 1:].abs().max() > 1e-3
    assert (
        not gg.dynamics.relevance(layer, x, lambda r: r[0][-1].sum(-1), method="gradient").features[..., 0].eq(0).all()
    )


def lrp_of_lstm(model: Reader, tokens: Tensor, target: int) -> Tensor:
    """LRP of one sequence through an LSTM, backward in time (Arras et al. 2017, equations 1 to 4, epsilon of 0)."""
    layer, x = model.layer, model.embedding(tokens)
    w_ih, w_hh, bias = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0 + layer.bias_hh_l0
    h, c, steps = torch.zeros(H).double(), torch.zeros(H).double(), []
    for t in range(len(x)):
        a = w_ih @ x[t] + w_hh @ h + bias
        i, f, o = (torch.sigmoid(v) for v in (a[:H], a[H : 2 * H], a[3 * H :]))
        g_in = a[2 * H : 3 * H]
        new = f * c + i * torch.tanh(g_in)
        steps.append((x[t], h, c, i, f, g_in, new))
        h, c = o * torch.tanh(new), new
    z = model.linear(h)[target]
    r_h = h * model.linear.weight[target] / z * z  # the fraction of the score of each unit
    r_c, relevances = torch.zeros(H).double(), []
    for xt, h_before, c_before, i, f, g_in, new in reversed(steps):
        r_c = r_c + r_h  # o is a gate, and tanh passes relevance on
        r_g = i * torch.tanh(g_in) / new * r_c
        r_c = f * c_before / new * r_c
        rows = slice(2 * H, 3 * H)
        relevances.append((xt * w_ih[rows] / g_in[:, None] * r_g[:, None]).sum(0).sum())
        r_h = (h_before * w_hh[rows] / g_in[:, None] * r_g[:, None]).sum(0)
    return torch.stack(relevances[::-1])


class Attentive(nn.Module):
    """A layer, attention over its outputs, and a tanh before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.look, self.middle = gg.GRU(E, H), nn.Linear(H, 1), nn.Linear(H, H)
        self.linear = nn.Linear(H, C)

    def forward(self, series: Tensor) -> Tensor:
        output, _ = self.layer(series)
        context = (self.look(output).tanh().softmax(0) * output).sum(0)
        return self.linear(self.middle(context).tanh())


def test_an_attention_and_a_tanh_around_the_layers_conserve_relevance() -> None:
    torch.manual_seed(0)
    model, series = Attentive().double(), noise(1, 6, 2, E)
    with gg.engine("reference"):
        scores, relevance = model(series)[:, 1], gg.dynamics.relevance(model, series, 1)
    assert torch.allclose(relevance.scores, scores, rtol=0, atol=1e-12)
    assert abs(relevance.unexplained) < 1e-10
    assert relevance.tokens.abs().max() > 1e-3
    assert not model.layer.glassgate.edits


def test_an_lstm_follows_the_published_rules() -> None:
    model = reader(gg.cells.LSTM())
    relevance = gg.dynamics.relevance(model, TOKENS, 2)
    truth = torch.stack([lrp_of_lstm(model.eval(), tokens, 2) for tokens in TOKENS.T], 1)
    assert torch.allclose(relevance.tokens, truth.detach(), rtol=1e-9, atol=1e-12)


def decomposition_of_lstm(model: Reader, tokens: Tensor, phrase: Tensor, target: int) -> tuple[Tensor, Tensor]:
    """Contextual decomposition of one sequence through an LSTM, as in the program of Murdoch et al. (2018).

    Returns the parts of the phrase and of its context; these and the bias of the last layer add up to the score.
    """
    layer, x = model.layer, model.embedding(tokens)
    w_ih, w_hh, bias = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0 + layer.bias_hh_l0
    rel_h, irrel_h, rel_c, irrel_c = torch.zeros(4, H).double()

    def split(a: Tensor, b: Tensor, c: Tensor, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        whole = f(a + b + c)
        return 0.5 * (f(a + c) - f(c) + whole - f(b + c)), 0.5 * (f(b + c) - f(c) + whole - f(a + c)), f(c)

    for t in range(len(x)):
        rel, irrel = w_hh @ rel_h, w_hh @ irrel_h
        if phrase[t]:
            rel = rel + w_ih @ x[t]
        else:
            irrel = irrel + w_ih @ x[t]
        functions = torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid
        (rel_i, irrel_i, b_i), (rel_f, irrel_f, b_f), (rel_g, irrel_g, b_g), output = (
            split(*each) for each in zip(rel.chunk(4), irrel.chunk(4), bias.chunk(4), functions, strict=True)
        )
        rel_c, irrel_c = (
            rel_i * (rel_g + b_g) + b_i * rel_g + (rel_f + b_f) * rel_c,
            irrel_i * (rel_g + irrel_g + b_g) + (rel_i + b_i) * irrel_g + b_i * b_g
            + (rel_f + irrel_f + b_f) * irrel_c + irrel_f * rel_c,
        )  # fmt: skip
        rel_tanh, irrel_tanh, _ = split(rel_c, irrel_c, torch.zeros(H).double(), torch.tanh)
        rel_h, irrel_h = sum(output) * rel_tanh, sum(output) * irrel_tanh
    return model.linear.weight[target] @ rel_h, model.linear.weight[target] @ irrel_h


def test_contextual_decomposition_follows_the_published_program() -> None:
    model = reader(gg.cells.LSTM()).eval()
    relevance = gg.dynamics.relevance(model, TOKENS, 2, method="contextual")
    phrase = torch.tensor([[False, True], [True, True], [True, False], [False, False], [False, True]])
    of_phrase = gg.dynamics.contribution(model, TOKENS, 2, phrase)
    for row in range(2):
        for k in range(len(TOKENS)):
            rel, irrel = decomposition_of_lstm(model, TOKENS[:, row], torch.arange(len(TOKENS)) == k, 2)
            assert torch.allclose(relevance.tokens[k, row], rel, rtol=0, atol=1e-12)
            assert torch.allclose(rel + irrel + model.linear.bias[2], relevance.scores[row], rtol=0, atol=1e-12)
        rel, _ = decomposition_of_lstm(model, TOKENS[:, row], phrase[:, row], 2)
        assert torch.allclose(of_phrase[row], rel, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", gg.cells.__all__)
def test_contextual_parts_of_every_cell_are_complete(name: str) -> None:
    """A phrase of all tokens and the biases add up to the score. An empty phrase contributes zero."""
    model = reader(getattr(gg.cells, name)(), num_layers=2, proj_size=PROJECTED.get(name, 0))
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            if "bias" in weight_name or "shift" in weight_name:
                weight.zero_()
    scores = model.eval()(TOKENS)[:, 1]
    of_all_tokens = gg.dynamics.contribution(model, TOKENS, 1, torch.ones_like(TOKENS, dtype=torch.bool))
    assert (gg.dynamics.contribution(model, TOKENS, 1, torch.zeros_like(TOKENS, dtype=torch.bool)) == 0).all()
    if name not in WITH_CONSTANTS:
        assert torch.allclose(of_all_tokens, scores, rtol=1e-5, atol=0)
    tokens = gg.dynamics.relevance(model, TOKENS, 1, method="contextual").tokens
    assert tokens.isfinite().all()
    assert tokens.abs().max() > 1e-6


def test_bidirectional_layers_lengths_and_other_methods() -> None:
    model = reader(gg.cells.GRU(), bidirectional=True)
    model.forward = lambda tokens: model.linear(model.layer(model.embedding(tokens))[0].mean(0))
    scores = model.eval()(TOKENS)[:, 0]
    assert abs(gg.dynamics.relevance(model, TOKENS, 0).unexplained) <= 1e-5 * scores.abs().sum()
    integrated = gg.dynamics.relevance(model, TOKENS, 0, method="integrated", points=64)
    assert abs(integrated.unexplained) <= 1e-3 * scores.abs().sum()
    gradient = gg.dynamics.relevance(model, TOKENS, 0, method="gradient")
    embedded = model.embedding(TOKENS).detach().requires_grad_()
    model.linear(model.layer(embedded)[0].mean(0))[:, 0].sum().backward()
    assert torch.allclose(gradient.features, embedded.detach() * embedded.grad)
    ragged = reader(gg.cells.LSTM())
    relevance = gg.dynamics.relevance(ragged, TOKENS, 1, lengths=torch.tensor([5, 3]))
    assert (relevance.tokens[3:, 1] == 0).all()
    assert (relevance.tokens[:, 0] != 0).all()


def test_numeric_features_and_a_score_at_one_step() -> None:
    layer, series = gg.LSTM(2, 3).double(), noise(1, 6, 2, 2)
    relevance = gg.dynamics.relevance(layer, series, lambda result: result[0][3].sum(-1))
    assert relevance.features.shape == series.shape
    assert (relevance.tokens[4:] == 0).all()
    assert abs(relevance.unexplained) < 1e-9


def test_the_token_that_decides_has_the_most_relevance() -> None:
    """The network has learned whether token 7 has occurred."""
    torch.manual_seed(1)
    model = Reader(gg.LSTM(E, 12), 12)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(120):
        tokens = torch.randint(9, (10, 32))
        labels = (tokens == 7).any(0).long()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), labels).backward()
        optimizer.step()
    tokens = torch.randint(7, (10, 20))
    place = torch.randint(10, (20,))
    tokens[place, torch.arange(20)] = 7
    for method in ("lrp", "integrated"):
        relevance = gg.dynamics.relevance(model, tokens, lambda scores: scores[:, 1] - scores[:, 0], method=method)
        assert (relevance.tokens.argmax(0) == place).double().mean() >= 0.9, method


def test_the_model_is_restored_and_invalid_arguments_raise_errors() -> None:
    model = reader(gg.cells.LSTM()).train()
    model.layer.requires_grad_(False)
    before = model.eval()(TOKENS)
    model.train()
    gg.dynamics.relevance(model, TOKENS, 0)
    assert model.training
    assert not any(weight.requires_grad for weight in model.layer.parameters())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(model.eval()(TOKENS), before)
    with pytest.raises(
        TypeError, match=r"relevance: the model must hold a recurrent layer of glassgate, got Linear; gg.convert"
    ):
        gg.dynamics.relevance(nn.Linear(2, 2), torch.zeros(1, 2), 0)
    with pytest.raises(
        gg.ShapeError, match=r"contribution: phrase must be bool, one per token, \(\d+, \d+\), got torch.int"
    ):
        gg.dynamics.contribution(model, TOKENS, 0, torch.ones_like(TOKENS))
    with pytest.raises(ValueError, match=r"relevance: method must be one of .* got 'deep'"):
        gg.dynamics.relevance(model, TOKENS, 0, method="deep")
    one_hot = reader(gg.cells.LSTM())
    one_hot.forward = lambda tokens: one_hot.layer(nn.functional.one_hot(tokens, E).double())
    with pytest.raises(TypeError, match=r"must be read by one nn.Embedding, 0 read them"):
        gg.dynamics.relevance(one_hot, TOKENS.clamp_max(E - 1), 0)
    with pytest.raises(
        TypeError, match="the model returns a tuple, so target must be a function from it to one score per row"
    ):
        gg.dynamics.relevance(gg.LSTM(2, 3), torch.zeros(4, 1, 2), 0)


@pytest.mark.parametrize("method", ["lrp", "gradient", "integrated"])
def test_a_score_without_a_gradient_is_named(method: str) -> None:
    model = reader(gg.cells.LSTM())

    def target(scores: Tensor) -> Tensor:
        return scores[:, 1].sigmoid() if method == "lrp" else scores.argmax(1).double()

    with pytest.raises(ValueError, match="expected a score that is differentiable in the input, got one without a"):
        gg.dynamics.relevance(model, TOKENS, target, method=method)
