"""Results of a translation run other than scores: the first translations and their attention weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.attention import Attended, attention_picture
from glassgate.tasks.runs import write
from glassgate.tasks.translation.search import END

_SHOWN, _DRAWN = 200, 4  # the number of translations to write, and of those to draw


class TranslationSummary(Summary):
    """Signatures of sacrebleu, `translations.tsv` and `attention.svg`."""

    def signatures(self) -> dict[str, str]:
        from glassgate.tasks.translation.scores import signatures

        return signatures(self.task.fitted["bleu"])

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        task, encoded = self.task, encoded[:_SHOWN]
        rows: list[list[str]] = [[] for _ in encoded]
        pictures: dict[int, Attended] = {}
        source, target = (task.vocabularies[side].symbols for side in ("source", "target"))
        for output, batch, pieces in task.outputs(encoded):
            hypotheses, right = task.hypotheses(output, batch, task.search), task.references(batch)
            for piece, best, reference in zip(pieces, hypotheses, right, strict=True):
                numbers = encoded[piece.index]["source"]
                units = [source[n - FIRST] if n != UNKNOWN else "\N{REPLACEMENT CHARACTER}" for n in numbers]
                rows[piece.index] = [task.joined(units, 0), reference, task.target_text(best[0])]
                if piece.index < _DRAWN and task.options.attention != "none":
                    weights = task.weights(numbers, np.array([*best[0].tokens, END]))
                    written = [*(target[number - FIRST] for number in best[0].tokens), ""]
                    pictures[piece.index] = Attended(units, written, weights)
        files = [folder / "translations.tsv"]
        lines = ["\t".join(row) for row in (["source", "reference", "translation"], *rows)]
        write(files[0], "".join(f"{line}\n" for line in lines).encode())
        if pictures:
            files.append(folder / "attention.svg")
            write(files[1], attention_picture(*(pictures[place] for place in sorted(pictures))).encode())
        return files
