"""Subwords: byte-pair encoding, learned from training texts by the package `tokenizers`."""

import json
from collections.abc import Iterable
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from glassgate.extras import install_command
from glassgate.tasks.errors import OptionError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
"""The mark at the beginning of a word's first subword, in place of the space before the word."""

_UNKNOWN = "<unknown>"


class Subwords:
    """A byte-pair encoding of text as subwords (Sennrich, Haddow & Birch 2016, arXiv:1508.07909).

    Args:
        content: the tokenizer as JSON values, as stored in a run

    Example:
        >>> subwords = Subwords.learn(["low low low lower lowest"], max_subwords=13)
        >>> subwords.split("slow low"), Subwords.join(["▁s", "low", "▁low"])
        (['▁', 's', 'lo', 'w', '▁low'], 'slow low')
    """

    def __init__(self, content: dict[str, Any]):
        self.content = content

    @classmethod
    def learn(cls, texts: Iterable[str], max_subwords: int) -> "Subwords":
        """Learn at most `max_subwords` subwords, including single characters and the unknown subword, from texts.

        Raises:
            OptionError: the package `tokenizers` is not installed
        """
        if find_spec("tokenizers") is None:
            raise OptionError(
                f"subwords need the package tokenizers, which is not installed: {install_command('tokenizers')}; or "
                "choose words or characters with --source-tokens and --target-tokens"
            )
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme="always"), pre_tokenizers.Punctuation()]
        )
        trainer = trainers.BpeTrainer(vocab_size=max_subwords, show_progress=False, special_tokens=[_UNKNOWN])
        tokenizer.train_from_iterator(texts, trainer)
        return cls(json.loads(tokenizer.to_str()))

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(json.dumps(self.content))

    def split(self, text: str) -> list[str]:
        """Return the subwords of a text. Unknown characters become `<unknown>`, which no vocabulary contains."""
        tokens: list[str] = self._tokenizer.encode(text).tokens
        return tokens

    @staticmethod
    def join(subwords: Iterable[str]) -> str:
        """Join subwords to a text."""
        return "".join(subwords).replace(BLANK, " ").strip()
