"""`python -m benchmarks.deletion`: accuracy while tokens are deleted in the order of their relevance, or at random.

A small LSTM classifies the utterances of SNIPS (7 intents), another one the series of Japanese Vowels (9 speakers). Of
each test example that the network classifies correctly, tokens (or steps of the series) are deleted, those with the
largest relevance for the predicted class first. The area between the accuracy curve and that of random orders is the
mean difference over the deleted fractions 0.1 to 0.9 (Arras et al. 2019, arXiv:1909.12114, section 4).

GLASSGATE_DATA names the folder of the data; docs/results.md describes it.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import glassgate as gg
from experiments.common.command_line import data_folder

FRACTIONS = [k / 10 for k in range(1, 10)]
METHODS = ("lrp", "contextual", "integrated", "gradient")
SHUFFLES = 5

Example = tuple[Tensor, int]
"""Token numbers (L,) or a series (L, C), and the number of the class."""


class Reader(nn.Module):
    """A class from the final state of an LSTM."""

    def __init__(self, vocabulary: int, channels: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 32) if vocabulary else nn.Identity()
        self.dropout = nn.Dropout(0.3)
        self.lstm = gg.LSTM(32 if vocabulary else channels, 64)
        self.linear = nn.Linear(64, classes)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Scores (N, classes) of inputs (L, N) or (L, N, C)."""
        _, (h, _) = self.lstm(self.dropout(self.embedding(inputs)), lengths=lengths)
        return self.linear(self.dropout(h[-1]))


def snips(data: Path) -> tuple[list[Example], list[Example], int]:
    """Training and test examples, and the size of the vocabulary. Number 0 is an unknown word."""

    def read(part: str) -> list[tuple[list[str], str]]:
        lines, labels = ((data / "snips_slu" / part / name).read_text().splitlines() for name in ("seq.in", "label"))
        return [(line.split(), label.strip()) for line, label in zip(lines, labels, strict=True)]

    train, test = read("train"), read("test")
    words = {word: k for k, word in enumerate(sorted({word for line, _ in train for word in line}), start=1)}
    classes = {label: k for k, label in enumerate(sorted({label for _, label in train}))}

    def numbered(part: list[tuple[list[str], str]]) -> list[Example]:
        return [(torch.tensor([words.get(word, 0) for word in line]), classes[label]) for line, label in part]

    return numbered(train), numbered(test), len(words) + 1


def vowels(data: Path) -> tuple[list[Example], list[Example], int]:
    """Training and test series."""

    def read(part: str) -> list[Example]:
        lines = (data / "japanese_vowels" / f"JapaneseVowels_{part}.ts").read_text().splitlines()
        found = []
        for line in lines[lines.index("@data") + 1 :]:
            *channels, label = line.split(":")
            series = torch.tensor([[float(v) for v in channel.split(",")] for channel in channels]).T
            found.append((series, int(label) - 1))
        return found

    return read("TRAIN"), read("TEST"), 0


def batched(examples: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return padded inputs (L, N, ...) and lengths."""
    return pad_sequence(list(examples)), torch.tensor([len(each) for each in examples])


def trained(train: list[Example], vocabulary: int, epochs: int) -> Reader:
    """Return a network that is trained on the examples. One word in twenty is replaced by the unknown word."""
    torch.manual_seed(0)
    order = random.Random(0)
    channels = 0 if vocabulary else train[0][0].shape[1]
    model = Reader(vocabulary, channels, max(label for _, label in train) + 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    steps = epochs * (len(train) // 32)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = order.sample(train, 32)
        inputs, lengths = batched([each for each, _ in some])
        if vocabulary:
            inputs = torch.where(torch.rand(inputs.shape) < 0.05, 0, inputs)
        loss = nn.functional.cross_entropy(model(inputs, lengths), torch.tensor([label for _, label in some]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def right(model: Reader, inputs: Sequence[Tensor], labels: Sequence[int]) -> Tensor:
    """Return whether each input is assigned this class, (N,)."""
    with torch.no_grad():
        return model(*batched(inputs)).argmax(-1) == torch.tensor(labels)


def orders(model: Reader, examples: list[Example], method: str) -> list[Tensor]:
    """The tokens of each example, the most relevant first. Examples of one length are explained together."""
    found: dict[int, Tensor] = {}
    for length in {len(each) for each, _ in examples}:
        places = [k for k, (each, _) in enumerate(examples) if len(each) == length]
        inputs = torch.stack([examples[k][0] for k in places], 1)
        labels = torch.tensor([examples[k][1] for k in places])
        relevance = gg.dynamics.relevance(model, inputs, labels, method=method).tokens
        found |= dict(zip(places, relevance.argsort(0, descending=True).unbind(1), strict=True))
    return [found[k] for k in range(len(examples))]


def curve(model: Reader, examples: list[Example], order: list[Tensor]) -> Tensor:
    """(fractions, N): whether the class is still right after the first tokens of the order are deleted."""
    rows = []
    for fraction in FRACTIONS:
        left = []
        for (inputs, _), places in zip(examples, order, strict=True):
            kept = places[min(len(places) - 1, round(fraction * len(places))) :].sort().values
            left.append(inputs[kept])
        rows.append(right(model, left, [label for _, label in examples]))
    return torch.stack(rows).double()


def main() -> None:
    """Train, explain, delete, and print the areas with their 95 % intervals."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deletion", description="Deletes relevant tokens.")
    parser.add_argument("--examples", type=int, default=700, help="maximum number of test examples (default: 700)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = data_folder()
    for name, read, epochs in (("SNIPS", snips, 3), ("Japanese Vowels", vowels, 60)):
        train, test, vocabulary = read(data)
        model = trained(train, vocabulary, epochs)
        correct = right(model, [each for each, _ in test], [label for _, label in test])
        chosen = [each for each, is_right in zip(test, correct.tolist(), strict=True) if is_right and len(each[0]) > 1]
        chosen = chosen[: options.examples]
        torch.manual_seed(1)
        shuffled = [[torch.randperm(len(each)) for each, _ in chosen] for _ in range(SHUFFLES)]
        by_chance = torch.stack([curve(model, chosen, order) for order in shuffled]).mean(0)
        print(f"{name}: accuracy {correct.double().mean():.1%} on {len(test)} examples, {len(chosen)} explained")
        print(f"  random      {' '.join(f'{v:.2f}' for v in by_chance.mean(1))}")
        for method in METHODS:
            deleted = curve(model, chosen, orders(model, chosen, method))
            area = (by_chance - deleted).mean(0)
            error = 1.96 * area.std() / len(area) ** 0.5
            print(
                f"  {method:<11} {' '.join(f'{v:.2f}' for v in deleted.mean(1))}  area {area.mean():.3f} +- {error:.3f}"
            )


if __name__ == "__main__":
    main()
