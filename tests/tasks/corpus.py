"""A small generated corpus, in which tags depend on the words on both sides, and the tokens that a network embeds."""

import random
from pathlib import Path
from typing import Any

from torch import Tensor

from glassgate.tasks.data.tagged import Tagged

NOUNS = ("cat", "dog", "bird", "fish", "run", "walk")
VERBS = ("sees", "hears", "likes", "run", "walk")


def sentences(count: int, seed: int = 0) -> list[Tagged]:
    """Return sentences of 2 to 9 words, in which "run" and "walk" are nouns or verbs, depending on their position."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(draw.randint(1, 3)):
            if draw.random() < 0.5:
                words.append("the")
                tags.append("DET")
            words += [draw.choice(NOUNS), draw.choice(VERBS)]
            tags += ["NOUN", "VERB"]
        made.append(Tagged(tuple(words), tuple(tags)))
    return made


def write_conllu(path: Path, examples: list[Tagged]) -> Path:
    """Write a CoNLL-U file that also contains comments, multiword tokens and empty nodes."""
    lines = []
    for number, each in enumerate(examples):
        lines.append(f"# sent_id = {number}")
        lines.append("1-2\tmulti\t" + "\t".join("_" * 8))
        for place, (word, tag) in enumerate(zip(each.tokens, each.labels or (), strict=True), start=1):
            lines.append(f"{place}\t{word}\t_\t{tag}\t{tag.lower()}\t_\t_\t_\t_\t_")
        lines += ["8.1\tempty\t" + "\t".join("_" * 8), ""]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def embedded(network: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return the tokens that a network embeds for a batch; in training, some of them are the unknown token."""
    seen: list[Tensor] = []
    handle = network.embedding.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    network(batch)
    handle.remove()
    return seen[0]
