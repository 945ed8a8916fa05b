"""Greedy search and beam search equal plain loops over teacher-forced scores of the network."""

import itertools

import pytest
import torch
from torch import Tensor

import glassgate as gg
from experiments.quality.plain import with_plain_layers
from experiments.speed.studies.translation import PlainTranslator
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.translation.network import Translator
from glassgate.tasks.translation.options import TranslationOptions
from glassgate.tasks.translation.search import END, Hypothesis, Search, search

VOCABULARY_SIZE = 5  # padding, unknown, the end of a sentence and two tokens
CASES = [
    {"attention": "general"},
    {"attention": "additive", "input_feeding": True, "num_layers": 2},
    {"attention": "none", "cell": "gru"},
    {"attention": "additive", "cell": "gru", "input_feeding": True, "wide_output": True},
    {"attention": "dot", "tied": True, "embedding_size": 6, "cell": "slstm"},
]


def network(given: dict[str, object], vocabulary_size: int = VOCABULARY_SIZE) -> Translator:
    options = {"hidden_size": 6, "embedding_size": 4, "dropout": 0.1} | given
    made = Translator(TranslationOptions.from_mapping(options), 9, vocabulary_size).eval()
    for parameter in made.parameters():  # far from uniform, so that beams differ
        torch.nn.init.normal_(parameter, std=1.0)
    return made


def sources(rows: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([1 + (3 * row) % 5 for row in range(rows)])
    source = torch.randint(2, 9, (rows, 5))
    return source * (torch.arange(5) < lengths[:, None]), lengths


def search_each(
    model: Translator, source: Tensor, lengths: Tensor, limits: list[int], how: Search
) -> list[list[Hypothesis]]:
    with torch.inference_mode():
        return search(model.decoder, *model.encode(source, lengths), limits, how)


@torch.no_grad()
def log_probability(model: Translator, source: Tensor, tokens: tuple[int, ...]) -> float:
    target = torch.tensor([[*tokens, END]])
    batch = {"source": source[None], "target": target, "lengths": torch.tensor([len(source)])}
    logs = model(batch).scores.log_softmax(-1)
    return float(logs[0].gather(1, target[0][:, None] - UNKNOWN).sum())


@pytest.mark.parametrize("given", CASES, ids=str)
def test_a_full_beam_equals_exhaustive_search(given: dict[str, object]) -> None:
    """If the beam holds every sequence, the n-best list contains all sequences up to the limit, ordered by score."""
    model, limit, penalty = network(given), 4, 0.7
    source, lengths = sources(2)
    how = Search(beam=40, length_penalty=penalty)
    lists = search_each(model, source, lengths, [limit, limit], how)
    every = [tokens for length in range(limit) for tokens in itertools.product((3, 4), repeat=length)]
    for row, length, best in zip(source, lengths, lists, strict=True):
        scores = {
            tokens: log_probability(model, row[:length], tokens) / ((6 + len(tokens)) / 6) ** penalty
            for tokens in every
        }
        expected = sorted(scores, key=lambda tokens: -scores[tokens])
        assert [each.tokens for each in best] == expected
        assert [each.score for each in best] == pytest.approx([scores[tokens] for tokens in expected], abs=1e-4)


@pytest.mark.parametrize("given", CASES, ids=str)
def test_a_beam_of_one_takes_the_most_likely_token(given: dict[str, object]) -> None:
    model = network(given, vocabulary_size=9)
    source, lengths = sources(6)
    limits = [4, 9, 3, 1, 7, 12]
    for row, best in enumerate(search_each(model, source, lengths, limits, Search(beam=1, length_penalty=1.0))):
        tokens: list[int] = []
        while len(tokens) < limits[row] - 1:
            target = torch.tensor([[*tokens, PADDING]])
            one = {"source": source[row, : lengths[row]][None], "target": target, "lengths": lengths[row : row + 1]}
            with torch.no_grad():
                scores = model(one).scores[0, -1]
            scores[0] = -torch.inf  # never the unknown token
            token = int(scores.argmax()) + UNKNOWN
            if token == END:
                break
            tokens.append(token)
        assert best[0].tokens == tuple(tokens)
        assert len(best) == 1


@pytest.mark.parametrize("given", CASES[:3], ids=str)
def test_other_sequences_engines_and_plain_layers_do_not_change_translations(given: dict[str, object]) -> None:
    """Sentences alone and in batches, streams, the reference engine and layers of torch.nn give equal translations."""
    model, how = network(given, vocabulary_size=12), Search(beam=3, length_penalty=0.6)
    source, lengths = sources(8)
    limits = [3 + row for row in range(8)]
    together = search_each(model, source, lengths, limits, how)
    alone = [
        search_each(model, source[row : row + 1, : lengths[row]], lengths[row : row + 1], limits[row : row + 1], how)[0]
        for row in range(8)
    ]
    with gg.engine("reference"):
        reference = search_each(model, source, lengths, limits, how)
    plain = search_each(with_plain_layers(model).eval(), source, lengths, limits, how)
    for other in (alone, reference, plain):
        assert [[each.tokens for each in best] for best in other] == [
            [each.tokens for each in best] for best in together
        ]
        for one, another in zip(together, other, strict=True):
            assert [each.score for each in one] == pytest.approx([each.score for each in another], abs=1e-4)


@pytest.mark.parametrize("wide_output", [False, True])
def test_the_benchmark_compares_with_the_same_model(wide_output: bool) -> None:
    model = network({"wide_output": wide_output, "num_layers": 2})
    source, lengths = sources(6)
    limits, how = [2, 3, 4, 5, 4, 3], Search(beam=3)
    ours, plain = (
        search_each(model, source, lengths, limits, how),
        PlainTranslator(model).eval().search(source, lengths, limits, how),
    )
    for one, other in zip(ours, plain, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], rel=1e-4)
