"""Reads the index of the documentation, docs/README.md, from which the navigation of the site is derived."""

import re
from pathlib import Path

INDEX = Path(__file__).parents[1] / "README.md"
_HEADING = re.compile(r"^## (.+)$")
_ENTRY = re.compile(r"^- \[(.+?)\]\(([^)#]+)\)")


def read_sections(text: str) -> dict[str, dict[str, str]]:
    r"""Return the files of an index by title, grouped by the headings above them.

    Raises:
        ValueError: an entry is above the first heading, or a title or a file occurs twice

    Example:
        >>> read_sections("# All\n## Start\n- [Layers](layers.md): arguments and results")
        {'Start': {'Layers': 'layers.md'}}
    """
    sections: dict[str, dict[str, str]] = {}
    files: set[str] = set()
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            sections[heading[1]] = {}
        elif entry := _ENTRY.match(line):
            if not sections or entry[2] in files or entry[1] in sections[[*sections][-1]]:
                raise ValueError(f"docs/README.md: expected each page once, below a heading, got {line!r}")
            files.add(entry[2])
            sections[[*sections][-1]][entry[1]] = entry[2]
    return sections
