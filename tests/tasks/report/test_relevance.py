"""The relevance on a report equals `gg.dynamics.relevance` of single answers; the page stores it in 8 bits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.dynamics.explanations import relevance_gradients
from glassgate.glass.data import decode_array, page_data
from glassgate.glass.study import Answer, Choice, Passage, Relevances, Study
from glassgate.tasks.data.batches import Batch, collate
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.report.relevance import add_relevances, relevance
from glassgate.tasks.report.task_view import TaskView, view_of
from tests.export.test_javascript import Sorted
from tests.tasks.live.runs import excerpts, trained


class Reader(nn.Module):
    """The network of a task as a function from the vectors that its encoder reads to the scores of its answers."""

    def __init__(self, view: TaskView[Any], batch: Batch) -> None:
        super().__init__()
        self.network, self.view, self.batch = view.task.network, view, batch

    def forward(self, vectors: Tensor) -> Tensor:
        def read(layer: nn.Module, args: Any) -> Any:
            return (vectors, *args[1:]) if args[0].shape == vectors.shape else None

        hook = self.network.encoder.register_forward_pre_hook(read)
        try:
            return self.view.answers(self.view.run(self.network, self.batch), self.batch).scores
        finally:
            hook.remove()


def read(name: str) -> tuple[TaskView[Any], Batch, Tensor, Relevances]:
    """Return a run, its input as a batch and as vectors, and the relevance of its steps to every answer."""
    torch.manual_seed(1)
    with gg.engine("reference"):
        task = trained(name)
    (excerpt,), view = excerpts(task), view_of(task)
    batch = collate([task.encode(excerpt.example)], [Piece(0, excerpt.start, excerpt.stop)], task.padding)
    vectors: list[Tensor] = []
    task.network.eval()
    hook = task.network.encoder.register_forward_pre_hook(lambda _, args: vectors.append(args[0].detach()))
    answers = view.answers(view.run(task.network, batch), batch).answers
    hook.remove()
    return view, batch, vectors[0], relevance(view, batch, range(len(answers)))


@pytest.mark.parametrize(
    "name",
    ["tagging", "classification", "classification of series", "translation", "regression of series", "fill-blanks"],
)
def test_relevance_equals_that_of_single_answers(name: str) -> None:
    view, batch, vectors, relevance = read(name)
    model = Reader(view, batch)
    with gg.engine("reference"):
        every = [gg.dynamics.relevance(model, vectors, (k,)) for k in relevance.targets]
    expected = np.stack([each.tokens[0].numpy() for each in every])
    if name == "classification":  # the linear map of the tokens does not read these vectors
        linear = view.task.network.linear(batch["units"])[0].detach().numpy()
        first, second = most_probable(view, batch)
        expected = expected + linear[:, first] - linear[:, second]
        assert np.abs(linear).max() > 1e-3
    if name == "regression of series":  # nor does that of the steps
        linear = view.task.network.linear(batch["series"], batch["lengths"])[0].numpy()
        expected = expected + linear.T[relevance.targets]
        assert np.abs(linear).max() > 1e-3
    # The character network comes before these vectors, so its biases are part of them.
    np.testing.assert_allclose(relevance.matrix, expected, atol=1e-6)
    np.testing.assert_allclose(relevance.biases, [each.biases for each in every], atol=1e-6)
    np.testing.assert_allclose(relevance.scores, [each.scores.item() for each in every], atol=1e-6)
    assert np.abs(relevance.matrix).max() > 1e-3
    if name == "fill-blanks":
        # The rest of the score is the relevance of the vector of the blank's length.
        left = view.task.network.left.weight
        with gg.engine("reference"), relevance_gradients(model):
            scores = model(vectors)[0]
            d_left = [torch.autograd.grad(score, left, retain_graph=True)[0][1] for score in scores]
        rest = torch.stack(d_left) @ left[1].detach()
        assert np.abs(relevance.rest).max() > 1e-2
        np.testing.assert_allclose(relevance.rest, rest, atol=1e-6)
    elif name == "classification of series":  # the kernel compares whole series
        scores = view.task.network.linear(batch["series"], batch["lengths"])[0, 0]
        first, second = most_probable(view, batch)
        assert abs(scores[first] - scores[second]) > 1e-2
        np.testing.assert_allclose(relevance.rest, scores[first] - scores[second], atol=1e-5)
        study = Study("", "", [Passage(["1"] * 12, [Answer(0, [Choice("slow", 1.0)], None)])], [])
        add_relevances(view, lambda *_: batch, study)
        assert study.notes[0].startswith("relevance: the ridge regression compares whole series")
    else:
        assert np.abs(relevance.rest).max() < 1e-5


def most_probable(view: TaskView[Any], batch: Batch) -> list[int]:
    """Return the indices of the two most probable labels."""
    (answer,) = view.answers(view.run(view.task.network, batch), batch).answers
    return [view.task.vocabularies["labels"].symbols.index(each[0]) for each in answer.best[:2]]


def test_the_score_is_the_log_odds_of_the_shown_probabilities() -> None:
    view, batch, _, relevance = read("tagging")
    said = view.answers(view.run(view.task.network, batch), batch)
    odds = [np.log((each.best[0].probability or 0) / (each.best[1].probability or 1)) for each in said.answers]
    np.testing.assert_allclose(relevance.scores, odds, atol=1e-5)
    assert (relevance.scores >= 0).all()
    assert relevance.name.format(first="A", second="B") == "log odds of A over B"


def test_a_page_contains_sums_exactly_and_relevances_in_8_bits() -> None:
    random = np.random.default_rng(0)
    matrix = random.normal(size=(3, 7)) * [[1e-3], [1], [50]]
    study = Study("", "", [], [], relevances=[Relevances([0, 4, 9], matrix, matrix[:, 0], matrix[:, 1], "score")])
    (packed,) = page_data(study)[0]["relevances"]
    numbers = decode_array(packed["values"]).reshape(packed["shape"]) * np.array(packed["peaks"])[:, None]
    assert (np.abs(numbers - matrix) <= np.abs(matrix).max(1, keepdims=True) / 253).all()
    np.testing.assert_allclose(packed["totals"], matrix.sum(1), rtol=1e-6)
    assert packed["targets"] == [0, 4, 9]


def test_a_cell_without_a_graph_leaves_a_note() -> None:
    with gg.engine("reference"):
        task = trained("tagging")
    network = task.network
    size = network.encoder.input_size
    network.encoder = gg.Recurrent(Sorted(), size, network.encoder.hidden_size, batch_first=True, bidirectional=True)
    excerpt = excerpts(task)[0]
    rows = collate([task.encode(excerpt.example)], [Piece(0, excerpt.start, excerpt.stop)], task.padding)
    made = Study("", "", [Passage(["play"] * 7, [Answer(0, [Choice("O", 1.0)], None)] * 7)], [])
    add_relevances(view_of(task), lambda *_: rows, made)
    assert not made.relevances
    (note,) = made.notes
    assert note.startswith("relevance: it is left out, because the cell cannot be traced (cell")
