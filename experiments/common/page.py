"""Writes Markdown: tables, and parts of pages between two comments."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from glassgate.tasks.wording import plural


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown.

    Example:
        >>> print(table(["cell", "steps"], [["LSTM", "100"]]), end="")
        | cell | steps |
        |---|---|
        | LSTM | 100 |
    """
    lines = ["|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([f"| {' | '.join(head)} |", *lines]) + "\n"


def replace_parts(page: Path, parts: Mapping[str, str], command: str) -> None:
    """Replace each named part of a page, between `<!-- NAME, written by COMMAND -->` and `<!-- end of NAME -->`.

    Raises:
        SystemExit: the page has no such comments
    """
    text = page.read_text("utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name}, written by {command} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            sys.exit(f"{page}: expected the comments {begin} and {end}, each on a line, around the part to replace")
        text = f"{before}{begin}\n{part}{end}{after}"
    page.write_text(text, "utf-8")


def machines(
    environments: Iterable[Mapping[str, Any]], packages: Sequence[str] | None = None, per: str = ""
) -> list[str]:
    """Return a line for each machine, with its versions.

    Args:
        environments: the environments of measurements, see `environment`.
        packages: the packages whose versions are listed. None for all, and for the instructions for bfloat16.
        per: text after the number of threads.
    """
    lines = set()
    for each in environments:
        parts = [f"{each['processor']}, {each['processors']} processors, {plural(each['threads'], 'thread')}{per}"]
        parts[0] += f", {each['system']}"
        if packages is None and "bfloat16" in each:
            parts.append(f"bfloat16 products: {each['bfloat16']}")
        versions = {name: each["versions"][name] for name in packages or each["versions"]}
        parts.append(", ".join(f"{name} {version}" for name, version in versions.items() if version))
        lines.add("; ".join(parts))
    return sorted(lines)
