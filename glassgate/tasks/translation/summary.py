"""Results of a translation run other than scores: the first translations and their attention weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.attention import AttentionWeights, attention_picture
from glassgate.tasks.runs import write
from glassgate.tasks.translation.search import END

_MAX_WRITTEN = 200  # the maximum number of translations in `translations.tsv`
_MAX_DRAWN = 4  # the maximum number of translations in `attention.svg`


class TranslationSummary(Summary):
    """Signatures of sacrebleu, `translations.tsv` and `attention.svg`."""

    def signatures(self) -> dict[str, str]:
        from glassgate.tasks.translation.scores import signatures

        return signatures(self.task.fitted["bleu"])

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        task, encoded = self.task, encoded[:_MAX_WRITTEN]
        rows: list[list[str]] = [[] for _ in encoded]
        pictures: dict[int, AttentionWeights] = {}
        source, target = (task.vocabularies[side].symbols for side in ("source", "target"))
        for output, batch, pieces in task.outputs(encoded):
            hypotheses, references = task.hypotheses(output, batch, task.search), task.references(batch)
            for piece, (best, *_), reference in zip(pieces, hypotheses, references, strict=True):
                indices = encoded[piece.index]["source"]
                tokens = [source[n - FIRST] if n != UNKNOWN else "\N{REPLACEMENT CHARACTER}" for n in indices]
                rows[piece.index] = [task.join(tokens, 0), reference, task.target_text(best)]
                if piece.index < _MAX_DRAWN and task.options.attention != "none":
                    weights = task.attention_weights(indices, np.array([*best.tokens, END]))
                    target_tokens = [*(target[index - FIRST] for index in best.tokens), ""]
                    pictures[piece.index] = AttentionWeights(tokens, target_tokens, weights)
        files = [folder / "translations.tsv"]
        lines = ["\t".join(row) for row in (["source", "reference", "translation"], *rows)]
        write(files[0], "".join(f"{line}\n" for line in lines).encode())
        if pictures:
            files.append(folder / "attention.svg")
            write(files[1], attention_picture(*(pictures[index] for index in sorted(pictures))).encode())
        return files
