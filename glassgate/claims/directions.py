"""Measures the benefit of a second direction for tagging, and shows why it is invalid for a language model."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

import glassgate as gg
from glassgate.claims.cells import hidden_size
from glassgate.claims.page import figure, machine, page, save
from glassgate.claims.pictures import Picture, drawing
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError

DIRECTIONS = ("forward", "backward", "both")
COLOURS = dict(zip(DIRECTIONS, ("#2f86cc", "#e0a010", "#0a9e76"), strict=True))
LENGTH, BATCH_SIZE, FEATURES, PARAMETERS = 100, 32, 24, 24_000
VOCABULARY_SIZE, REACH, GENERATED = 2_000, 30, 160
"""The vocabulary size, the largest distance at which sensitivity is measured, and the number of generated tokens."""
UNKNOWN, NO_TARGET = 0, -100
"""The index of tokens outside of the vocabulary, and the target of tokens without a label."""
_HEADINGS = {"forward": "one direction", "both": "two directions"}


class Text(NamedTuple):
    """A text in windows of `LENGTH` tokens.

    Attributes:
        tokens, labels: the indices of tokens and labels, (windows, LENGTH).
        lengths: the number of tokens in each window, (windows,).
        symbols, label_names: the token and the label of each index.
    """

    tokens: Tensor
    labels: Tensor
    lengths: Tensor
    symbols: list[str]
    label_names: list[str]


class Settings(NamedTuple):
    """The settings of the experiment.

    Attributes:
        updates: the number of updates of each network.
        seeds: the number of seeds of the taggers.
    """

    updates: int
    seeds: int


def to_texts(train: Sequence[Tagged], test: Sequence[Tagged]) -> tuple[Text, Text]:
    """Divide training and test examples into windows. The vocabulary and the labels are those of the training examples.

    Raises:
        DataError: labels are missing, or the data is empty
    """
    for example in (*train, *test):
        if example.labels is None:
            raise DataError(example.source, example.line(), "expected labels, one for each token, got none")
    counts = Counter(chain.from_iterable(example.tokens for example in train))
    symbols = ["?", *(token for token, _ in counts.most_common(VOCABULARY_SIZE))]
    label_names = sorted(set(chain.from_iterable(example.labels or () for example in train)))
    return _windows(train, symbols, label_names), _windows(test, symbols, label_names)


def _windows(examples: Sequence[Tagged], symbols: list[str], label_names: list[str]) -> Text:
    token_index = {token: k for k, token in enumerate(symbols)}
    label_index = {label: k for k, label in enumerate(label_names)}
    tokens, labels, lengths = [], [], []
    for example in examples:
        for start in range(0, len(example.tokens), LENGTH):
            window = [token_index.get(token, UNKNOWN) for token in example.tokens[start : start + LENGTH]]
            missing = LENGTH - len(window)
            tokens.append(window + [UNKNOWN] * missing)
            targets = [label_index.get(label, NO_TARGET) for label in (example.labels or ())[start : start + LENGTH]]
            labels.append(targets + [NO_TARGET] * missing)
            lengths.append(len(window))
    if not tokens:
        raise DataError(examples[0].source if examples else "data", None, "expected text to learn from, got none")
    return Text(torch.tensor(tokens), torch.tensor(labels), torch.tensor(lengths), symbols, label_names)


class DirectionalNetwork(nn.Module):
    """A network that reads forward, backward or in both directions. All have about the same number of parameters."""

    def __init__(self, direction: str, vocabulary_size: int, outputs: int) -> None:
        super().__init__()
        self.direction = direction
        parameters = PARAMETERS // (2 if direction == "both" else 1)
        size = hidden_size(gg.cells.LSTM(), FEATURES, parameters)
        self.embedding = nn.Embedding(vocabulary_size, FEATURES)
        self.layer = gg.LSTM(FEATURES, size, batch_first=True, bidirectional=direction == "both")
        self.head = nn.Linear(self.layer.output_size, outputs)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Compute logits (N, L, outputs) from embedded tokens (N, L, FEATURES)."""
        steps = torch.arange(embedded.shape[1])
        reversed_steps = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)[..., None]
        if self.direction == "backward":
            embedded = embedded.gather(1, reversed_steps.expand_as(embedded))
        output, _ = self.layer(embedded, lengths=lengths)
        if self.direction == "backward":
            output = output.gather(1, reversed_steps.expand_as(output))
        logits: Tensor = self.head(output)
        return logits


def _batches(text: Text, targets: Tensor, updates: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        rows = torch.randint(0, len(text.tokens), (BATCH_SIZE,), generator=generator)
        yield text.tokens[rows], targets[rows], text.lengths[rows]


def _train(network: DirectionalNetwork, text: Text, targets: Tensor, updates: int, seed: int) -> list[float]:
    """Train a network. Returns the loss of each update in nats per token."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    losses = []
    for tokens, batch_targets, lengths in _batches(text, targets, updates, seed):
        logits = network(network.embedding(tokens), lengths)
        loss = F.cross_entropy(logits.flatten(0, 1), batch_targets.flatten(), ignore_index=NO_TARGET)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def _accuracy(network: DirectionalNetwork, text: Text) -> float:
    correct = labelled_tokens = 0
    for start in range(0, len(text.tokens), 256):
        rows = slice(start, start + 256)
        predicted = network(network.embedding(text.tokens[rows]), text.lengths[rows]).argmax(-1)
        labelled = text.labels[rows] != NO_TARGET
        correct += int((predicted == text.labels[rows])[labelled].sum())
        labelled_tokens += int(labelled.sum())
    return correct / max(1, labelled_tokens)


def sensitivity(network: DirectionalNetwork, text: Text, targets: Tensor) -> list[float]:
    """Measure the sensitivity of an output to its input tokens, |d logit_t / d x_k| for k - t from -REACH to REACH.

    The logit belongs to the target at step t, the middle of a full window. The norm is over the features of the
    embedded token x_k. Norms are averaged over windows and divided by the largest mean.
    """
    t = LENGTH // 2
    rows = (text.lengths == LENGTH).nonzero()[:64, 0]
    rows = rows[targets[rows, t] != NO_TARGET]
    if not len(rows):
        return []
    embedded = network.embedding(text.tokens[rows]).detach().requires_grad_()
    logits = network(embedded, text.lengths[rows])
    logits[torch.arange(len(rows)), t, targets[rows, t]].sum().backward()
    assert embedded.grad is not None
    norms = embedded.grad.norm(dim=-1).mean(0)[t - REACH : t + REACH + 1]
    values: list[float] = (norms / norms.max()).tolist()
    return values


def next_tokens(text: Text) -> Tensor:
    """Return the targets of a language model: for each token, the next one."""
    targets = torch.full_like(text.tokens, NO_TARGET)
    targets[:, :-1] = text.tokens[:, 1:]
    has_next = torch.arange(LENGTH - 1) < text.lengths[:, None] - 1
    targets[:, :-1][~has_next] = NO_TARGET
    return targets


@torch.no_grad()
def generate(network: DirectionalNetwork, text: Text, start: Sequence[int], count: int, seed: int) -> str:
    """Generate `count` tokens after the tokens `start` with a language model. Returns all tokens as text."""
    generator = Generator().manual_seed(seed)
    tokens = list(start)
    for _ in range(count):
        context = torch.tensor([tokens[-LENGTH:]])
        logits = network(network.embedding(context), torch.tensor([context.shape[1]]))[0, -1]
        logits[UNKNOWN] = -torch.inf
        tokens.append(int(torch.multinomial((logits / 0.7).softmax(-1), 1, generator=generator)))
    separator = "" if all(len(symbol) == 1 for symbol in text.symbols) else " "
    return separator.join(text.symbols[k] for k in tokens)


def measure(train: Text, test: Text, settings: Settings, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Train and measure a tagger for each direction, and a one-directional and a bidirectional language model."""
    taggers = []
    for direction in DIRECTIONS:
        accuracies, losses, sensitivities = [], [], []
        for seed in range(settings.seeds):
            torch.manual_seed(seed)
            network = DirectionalNetwork(direction, len(train.symbols), len(train.label_names))
            losses.append(_train(network, train, train.labels, settings.updates, seed)[-1])
            accuracies.append(_accuracy(network, test))
            sensitivities.append(sensitivity(network, test, test.labels))
            report(f"tagger {direction}, seed {seed}: {accuracies[-1]:.2%} correct")
        means = [statistics.mean(column) for column in zip(*sensitivities, strict=True)]
        taggers.append({"reads": direction, "accuracy": accuracies, "loss": losses, "sensitivity": means})
    models = []
    for direction in ("forward", "both"):
        torch.manual_seed(0)
        network = DirectionalNetwork(direction, len(train.symbols), len(train.symbols))
        losses = _train(network, train, next_tokens(train), settings.updates, 0)
        start = test.tokens[0, :8].tolist()
        models.append(
            {
                "reads": direction,
                "loss": losses,
                "sensitivity": sensitivity(network, test, next_tokens(test)),
                "generated": generate(network, train, start, GENERATED, 0),
            }
        )
        report(f"language model {direction}: {losses[-1]:.3f} nats per token")
    return {"machine": machine(), "settings": settings._asdict(), "taggers": taggers, "language_models": models}


def _sensitivity_picture(name: str, rows: Sequence[dict[str, Any]], network: str) -> Picture:
    with drawing(6.4, 2.8) as (chart, ((axes,),)):
        for row in rows:
            offsets = range(-REACH, -REACH + len(row["sensitivity"]))
            axes.plot(offsets, row["sensitivity"], color=COLOURS[row["reads"]], label=row["reads"], lw=1.4)
        axes.set(xlabel="k - t, tokens", ylabel="|d logit(t) / d x(k)|", yscale="log", ylim=(1e-4, 1.5))
        axes.axvline(0, color="#8c8c8c", lw=0.6, ls=":")
        axes.legend(fontsize=8)
        return Picture(name, chart, f"Sensitivity of the output of {network} at token t to the token k.")


def _loss_picture(models: Sequence[dict[str, Any]]) -> Picture:
    with drawing(6.4, 2.8) as (chart, ((axes,),)):
        for row in models:
            axes.plot(row["loss"], color=COLOURS[row["reads"]], label=row["reads"], lw=1.2)
        axes.set(xlabel="updates", ylabel="nats per token", ylim=(0, None))
        axes.legend(fontsize=8)
        final = ", ".join(f"{row['reads']} {row['loss'][-1]:.3f}" for row in models)
        return Picture(
            "language-models", chart, f"Training loss of two language models in nats per token. Final losses: {final}."
        )


def write(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write `directions.html`, `directions.json` and the pictures. Returns the files."""
    taggers, models = results["taggers"], results["language_models"]
    pictures = [
        _sensitivity_picture("taggers-reach", taggers, "a tagger"),
        _loss_picture(models),
        _sensitivity_picture("models-reach", models, "a language model"),
    ]
    accuracy = {row["reads"]: statistics.mean(row["accuracy"]) for row in taggers}
    best_of_one = max(accuracy["forward"], accuracy["backward"])
    final_loss = {row["reads"]: row["loss"][-1] for row in models}
    findings = [
        f"Correct labels in test text: both directions {accuracy['both']:.2%}, forward {accuracy['forward']:.2%}, "
        f"backward {accuracy['backward']:.2%}; the second direction adds "
        f"{100 * (accuracy['both'] - best_of_one):.1f} points.",
        f"The loss of the bidirectional language model falls to {final_loss['both']:.3f} nats per token "
        f"(one direction: {final_loss['forward']:.3f}), because it reads the token that it predicts. The text that it "
        "generates is meaningless.",
    ]
    samples = "".join(f"<h3>{_HEADINGS[row['reads']]}</h3><pre>{escape(row['generated'])}</pre>" for row in models)
    sections = [
        (
            "Tokens that a tagger depends on",
            figure(pictures[0], "A network of one direction depends only on the tokens that it has read."),
        ),
        (
            "A language model that reads the answer",
            figure(pictures[1], "The loss on its training text, in nats per token."),
        ),
        (
            "Tokens that a language model depends on",
            figure(pictures[2], "The network of two directions depends on k = t + 1, the token that it predicts."),
        ),
        (
            "Generated text",
            "<p>Both texts begin with the same eight tokens. After these, each network reads only its own output.</p>"
            + samples,
        ),
    ]
    lead = "Networks with about the same number of parameters read a text forward, backward and in both directions."
    html = page("Two directions", lead, findings, sections)
    return save(folder, "directions", html, results, pictures)
