"""The choices that a task makes for its training file, and follows for the files that it reads later."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Reading:
    """The reading of a training file, as far as its content determines it. Runs store it.

    Attributes:
        tokens: the kind of the tokens, if only the file determines it; otherwise empty
        width: the number of columns of a file with a token per row; 0 for other files
        token_column: the column of the tokens, from 0
        label_column: the column of the labels, from 0
        text_name, label_name: the columns of texts and of their labels that were found by their content, as the options
            name them; empty if they have usual names
    """

    tokens: str = ""
    width: int = 0
    token_column: int = 0
    label_column: int = 0
    text_name: str = ""
    label_name: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return the choices as JSON values."""
        return asdict(self)

    @classmethod
    def of_run(cls, content: Any) -> "Reading":
        """Return the reading that run.json contains. Older runs store the columns among the fitted values."""
        columns = content["fitted"].get("columns")
        if columns:
            return cls(width=columns["width"], token_column=columns["unit"], label_column=columns["label"])
        return cls(**content.get("reading", {}))
