"""`python -m benchmarks deletion` evaluates relevance methods by deleting the most relevant tokens.

One small LSTM classifies the utterances of SNIPS (7 intents), and another one the series of Japanese Vowels (9
speakers). The test examples are those that the network classifies correctly. Their tokens (or steps of the series) are
deleted, those with the largest relevance for the predicted class first. The result, called area, is the accuracy with
random order minus the accuracy with this order, averaged over the deleted fractions 0.1 to 0.9 (Arras et al. 2019,
arXiv:1909.12114, section 4).

GLASSGATE_DATA names the folder of the data; docs/results.md describes it.
"""

import argparse
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import glassgate as gg
from experiments.common.command_line import data_folder, select
from experiments.quality.cases import CASES
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.task import Split

FRACTIONS = [k / 10 for k in range(1, 10)]
METHODS = ("lrp", "contextual", "integrated", "gradient")
SHUFFLES = 5
"""The number of random orders."""

Example = tuple[Tensor, int]
"""Token IDs (L,) or a series (L, C), and the index of the class."""


class Classifier(nn.Module):
    """Classifies a sequence by the final state of an LSTM."""

    def __init__(self, vocabulary: int, channels: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 32) if vocabulary else nn.Identity()
        self.dropout = nn.Dropout(0.3)
        self.lstm = gg.LSTM(32 if vocabulary else channels, 64)
        self.linear = nn.Linear(64, classes)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Compute scores (N, classes) of inputs (L, N) or (L, N, C)."""
        _, (h, _) = self.lstm(self.dropout(self.embedding(inputs)), lengths=lengths)
        return self.linear(self.dropout(h[-1]))


def read(split: Split[Labelled]) -> tuple[list[Example], list[Example], int]:
    """Return training and test examples, and the size of the vocabulary, 0 for series. ID 0 is an unknown word."""
    classes = {label: k for k, label in enumerate(sorted({str(example.label) for example in split.train}))}
    texts = [each.content.split() for each in split.train if isinstance(each.content, str)]
    words = {word: k for k, word in enumerate(sorted({word for text in texts for word in text}), start=1)}

    def encode(example: Labelled) -> Example:
        content: Any = example.content
        inputs = torch.tensor([words.get(word, 0) for word in content.split()] if words else content)
        return inputs, classes[str(example.label)]

    train, test = ([encode(example) for example in part] for part in (split.train, split.test))
    return train, test, len(words) + 1 if words else 0


def pad(examples: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return padded inputs (L, N, ...) and lengths."""
    return pad_sequence(list(examples)), torch.tensor([len(example) for example in examples])


def train_classifier(train: list[Example], vocabulary: int, epochs: int) -> Classifier:
    """Train a network. In each batch, one word in twenty is replaced by the unknown word."""
    torch.manual_seed(0)
    sampler = random.Random(0)
    channels = 0 if vocabulary else train[0][0].shape[1]
    model = Classifier(vocabulary, channels, max(label for _, label in train) + 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    steps = epochs * (len(train) // 32)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = sampler.sample(train, 32)
        inputs, lengths = pad([inputs for inputs, _ in batch])
        if vocabulary:
            inputs = torch.where(torch.rand(inputs.shape) < 0.05, 0, inputs)
        loss = nn.functional.cross_entropy(model(inputs, lengths), torch.tensor([label for _, label in batch]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def is_correct(model: Classifier, inputs: Sequence[Tensor], labels: Sequence[int]) -> Tensor:
    """Return whether the network predicts the label of each input, (N,) bool."""
    with torch.no_grad():
        return model(*pad(inputs)).argmax(-1) == torch.tensor(labels)


def relevance_orders(model: Classifier, examples: list[Example], method: str) -> list[Tensor]:
    """Return the indices of the tokens of each example, the most relevant first."""
    orders: dict[int, Tensor] = {}
    for length in {len(inputs) for inputs, _ in examples}:  # examples of one length form a batch
        indices = [k for k, (inputs, _) in enumerate(examples) if len(inputs) == length]
        inputs = torch.stack([examples[k][0] for k in indices], 1)
        labels = torch.tensor([examples[k][1] for k in indices])
        relevance = gg.dynamics.relevance(model, inputs, labels, method=method).tokens
        orders |= dict(zip(indices, relevance.argsort(0, descending=True).unbind(1), strict=True))
    return [orders[k] for k in range(len(examples))]


def correct_after_deletion(model: Classifier, examples: list[Example], orders: list[Tensor]) -> Tensor:
    """Return 1 where the prediction is correct after a fraction of tokens is deleted, otherwise 0, (fractions, N)."""
    rows = []
    for fraction in FRACTIONS:
        remaining = []
        for (inputs, _), order in zip(examples, orders, strict=True):
            kept = order[min(len(order) - 1, round(fraction * len(order))) :].sort().values
            remaining.append(inputs[kept])
        rows.append(is_correct(model, remaining, [label for _, label in examples]))
    return torch.stack(rows).double()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("--examples", type=int, default=700, help="maximum number of test examples (default: 700)")


def run(options: argparse.Namespace) -> None:
    """Train the networks, delete tokens, and print the accuracies and the areas with their 95 % intervals."""
    torch.set_num_threads(1)
    data = data_folder()
    for case, name, epochs in (("snips-intents", "SNIPS", 3), ("vowels", "Japanese Vowels", 60)):
        (chosen,) = select(CASES, [case], "case")
        train, test, vocabulary = read(chosen.split(data))
        model = train_classifier(train, vocabulary, epochs)
        correct = is_correct(model, [inputs for inputs, _ in test], [label for _, label in test])
        pairs = zip(test, correct.tolist(), strict=True)
        explained = [example for example, is_right in pairs if is_right and len(example[0]) > 1]
        explained = explained[: options.examples]
        torch.manual_seed(1)
        shuffled = [[torch.randperm(len(inputs)) for inputs, _ in explained] for _ in range(SHUFFLES)]
        by_chance = torch.stack([correct_after_deletion(model, explained, orders) for orders in shuffled]).mean(0)
        print(f"{name}: accuracy {correct.double().mean():.1%} on {len(test)} examples, {len(explained)} explained")
        print(f"  random      {' '.join(f'{v:.2f}' for v in by_chance.mean(1))}")
        for method in METHODS:
            deleted = correct_after_deletion(model, explained, relevance_orders(model, explained, method))
            area = (by_chance - deleted).mean(0)
            error = 1.96 * area.std() / len(area) ** 0.5
            print(
                f"  {method:<11} {' '.join(f'{v:.2f}' for v in deleted.mean(1))}  area {area.mean():.3f} +- {error:.3f}"
            )
