"""Formats counts, durations, lists and tokens for messages."""

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless the count is 1: "1 epoch", "1,500 steps"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a duration, rounded, in seconds, minutes or hours: "89 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def shortened_list(names: Sequence[str], limit: int = 12) -> str:
    """Return the first names of a list, separated by commas: "O, B-PER, ..."."""
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")


def printable(token: str) -> str:
    """Return a token, with line ends and other unprintable characters escaped."""
    return token if token.isprintable() else token.encode("unicode_escape").decode()
