"""Attention equals the formulas of the papers in plain Python, and padding has no weight."""

import math
from dataclasses import replace

import pytest
import torch

from glassgate.tasks.translation.attention import KINDS, Attention
from glassgate.tasks.translation.network import Translator
from glassgate.tasks.translation.options import TranslationOptions


@torch.no_grad()
def score(attention: Attention, query: list[float], state: list[float]) -> float:
    """Compute the score of one query and one state by the formulas of the papers."""
    q, m = torch.tensor(query), torch.tensor(state)
    if attention.kind == "dot":
        return float(q @ (m[: len(q)] + m[len(q) :])) / math.sqrt(len(q))
    if attention.kind == "general":
        return float(q @ (attention.key.weight @ m)) / math.sqrt(len(q))
    inner = attention.query.weight @ q + attention.key.weight @ m + attention.key.bias
    return float(attention.score.weight[0] @ torch.tanh(inner))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_context_are_those_of_the_papers(kind: str) -> None:
    attention = Attention(kind, query_size=3, memory_size=6, directions=2)
    states, queries, lengths = torch.randn(2, 5, 6), torch.randn(2, 4, 3), [5, 2]
    memory = attention.memory(states, torch.tensor(lengths))
    context, weights = attention(queries, memory)
    for row, length in enumerate(lengths):
        for step, query in enumerate(queries[row].tolist()):
            scores = [math.exp(score(attention, query, state)) for state in states[row, :length].tolist()]
            expected = torch.tensor([each / sum(scores) for each in scores])
            torch.testing.assert_close(weights[row, step, :length], expected)
            torch.testing.assert_close(context[row, step], attention.value.weight @ (expected @ states[row, :length]))
    assert (weights[1, :, 2:] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_untrained_attention_is_spread_over_many_states(kind: str) -> None:
    """This also holds for states of the largest size. A weight of 1 would have no gradient, and would never change."""
    attention = Attention(kind, query_size=512, memory_size=1024, directions=2)
    memory = attention.memory(torch.randn(1, 20, 1024).sign(), torch.tensor([20]))
    assert attention(torch.randn(1, 50, 512).sign(), memory)[1].max() < 0.9


@pytest.mark.parametrize("attention", [*KINDS, "none"])
@pytest.mark.parametrize(("feeding", "wide_output"), [(False, False), (True, False), (True, True)])
def test_padding_changes_nothing(attention: str, feeding: bool, wide_output: bool) -> None:
    """Scores and gradients do not depend on additional padding, its contents, or longer sentences in the batch."""
    options = TranslationOptions(
        hidden_size=4,
        embedding_size=3,
        dropout=0.0,
        attention=attention,
        input_feeding=feeding,
        wide_output=wide_output,
        num_layers=2,
    )
    network = Translator(options, 9, 8).double()
    source, target = torch.tensor([[2, 3, 4]]), torch.tensor([[3, 4, 2]])
    wide = torch.tensor([[2, 3, 4, 0, 0], [5, 6, 7, 8, 2]]), torch.tensor([[3, 4, 2, 0], [5, 6, 7, 2]])
    alone = network({"source": source, "target": target, "lengths": torch.tensor([3])}).scores
    beside = network({"source": wide[0], "target": wide[1], "lengths": torch.tensor([3, 5])}).scores
    torch.testing.assert_close(beside[:1, :3], alone, rtol=0, atol=1e-14)
    gradients = [torch.autograd.grad(each.square().sum(), [*network.parameters()]) for each in (alone, beside[:1, :3])]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_input_feeding_equals_the_equations_of_luong(cell: str) -> None:
    """The loop equals the paper's equations, evaluated step by step with calls of the layer for one step."""
    options = TranslationOptions(hidden_size=4, embedding_size=3, dropout=0.0, cell=cell, input_feeding=True)
    network = Translator(options, 9, 8).double()
    batch = {"source": torch.tensor([[2, 3, 4]]), "target": torch.tensor([[3, 4, 2]]), "lengths": torch.tensor([3])}
    output, decoder = network(batch), network.decoder
    memory = network.encoder(network.embedding(batch["source"]))[0][0]
    matrix = torch.cat([decoder.attention.value.weight, decoder.combine.weight], 1)
    state, readout, scores = output.state, torch.zeros(1, 4, dtype=torch.float64), []
    for previous in (0, 3, 4):
        vector = torch.cat([decoder.embedding.weight[[previous]], readout], -1)[:, None]
        out, state = decoder.layer(vector, state if cell == "lstm" or not isinstance(state, tuple) else state[0])
        weights = (out[0] @ decoder.attention.key.weight @ memory.T / 2).softmax(-1)  # divided by the root of H = 4
        readout = torch.tanh(torch.cat([weights @ memory, out[0]], -1) @ matrix.T + decoder.combine.bias)
        scores.append(decoder.head(readout))
    torch.testing.assert_close(output.scores, torch.stack(scores, 1))


def test_a_wide_output_has_the_published_number_of_parameters() -> None:
    """The third tutorial of Bentrevett reports 20,518,405 parameters, including a score for padding."""
    options = TranslationOptions(
        hidden_size=512, embedding_size=256, cell="gru", attention="additive", input_feeding=True, wide_output=True
    )
    with torch.device("meta"):
        network = Translator(options, 7853, 5893)
    sizes = 2 * 512 + 512 + 256
    assert sum(each.numel() for each in network.parameters()) == 20_518_405 - (sizes + 1)
    assert network.decoder.layer.input_size == 256 + 2 * 512


def test_a_wide_output_is_a_function_of_context_state_and_embedding() -> None:
    options = TranslationOptions(hidden_size=4, embedding_size=3, dropout=0.0, cell="gru", attention="additive")
    network = Translator(replace(options, input_feeding=True, wide_output=True), 9, 8).double()
    batch = {"source": torch.tensor([[2, 3, 4]]), "target": torch.tensor([[3, 4]]), "lengths": torch.tensor([3])}
    output, decoder = network(batch), network.decoder
    memory = network.encoder(network.embedding(batch["source"]))[0]
    of = decoder.attention.memory(memory, batch["lengths"])
    state, context, scores = output.state[0], torch.zeros(1, 1, 8, dtype=torch.float64), []
    for previous in (0, 3):
        vector = decoder.embedding.weight[[previous]][:, None]
        out, state = decoder.layer(torch.cat([vector, context], -1), state)
        context = decoder.attention(out, of)[1] @ memory
        scores.append(decoder.head(torch.cat([context, out, vector], -1)))
    torch.testing.assert_close(output.scores, torch.cat(scores, 1))
