"""Numbers, percentages and texts of steps in the wording of a report."""

import math

NARROW = "\N{NARROW NO-BREAK SPACE}"


def percent(fraction: float) -> str:
    """A fraction as a percentage.

    Example:
        >>> [words.replace(NARROW, " ") for words in (percent(0.381), percent(0.004), percent(0.0001), percent(0))]
        ['38 %', '0.4 %', 'under 0.1 %', '0 %']
    """
    if 0 < fraction < 0.0005:
        return f"under 0.1{NARROW}%"
    digits = 0 if fraction >= 0.1 or not fraction else 1
    return f"{100 * fraction:.{digits}f}{NARROW}%"


def signed(correlation: float) -> str:
    """Return a correlation as text, with a minus sign instead of a hyphen.

    Example:
        >>> signed(0.754), signed(-0.5) == "\N{MINUS SIGN}0.50"
        ('0.75', True)
    """
    return f"{correlation:.2f}".replace("-", "\N{MINUS SIGN}")


def quoted(words: str) -> str:
    """The text of a step, in quotes if it is short.

    Example:
        >>> quoted("word"), quoted(" "), quoted("x")
        ('word', '“ ”', '“x”')
    """
    return words if len(words.strip()) > 1 else f"“{words}”"


def steps(count: float) -> str:
    """A number of steps in words.

    Example:
        >>> steps(1), steps(2.345), steps(61.2), steps(float("inf"))
        ('1 step', '2.3 steps', '61 steps', 'ever')
    """
    if count == math.inf:
        return "ever"
    words = f"{count:.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"
    return f"{words} step" if words == "1" else f"{words} steps"


def count(number: int, singular: str, plural: str) -> str:
    """A number with the singular or plural of a noun.

    Example:
        >>> count(1, "unit", "units"), count(3, "unit", "units")
        ('1 unit', '3 units')
    """
    return f"{number} {singular if number == 1 else plural}"
