"""The index of the documentation, docs/README.md, as the navigation of the site."""

import re
from pathlib import Path

INDEX = Path(__file__).parents[1] / "README.md"
_HEADING = re.compile(r"^## (.+)$")
_ENTRY = re.compile(r"^- \[(.+?)\]\(([^)#]+)\)")


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the pages of an index: the file of each title, by the headings above them.

    Raises:
        ValueError: an entry above the first heading, or two of one title or file

    Example:
        >>> sections("# All\n## Start\n- [Layers](layers.md): arguments and results")
        {'Start': {'Layers': 'layers.md'}}
    """
    found: dict[str, dict[str, str]] = {}
    files: set[str] = set()
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            found[heading[1]] = {}
        elif entry := _ENTRY.match(line):
            if not found or entry[2] in files or entry[1] in found[[*found][-1]]:
                raise ValueError(f"docs/README.md: expected each page once, below a heading, got {line!r}")
            files.add(entry[2])
            found[[*found][-1]][entry[1]] = entry[2]
    return found
