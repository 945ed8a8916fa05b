"""Numbers, percentages and texts of steps in the wording of a report. script/numbers.js is the same for scripts."""

import math
import re

from glassgate.glass.languages import current, say

NARROW = "\N{NARROW NO-BREAK SPACE}"

_VISIBLE = {"\n": "↵", " ": "␣"}
_ZERO = re.compile(r"-(?=0(?:\.0*)?$)")


def fixed(value: float, digits: int = 2) -> str:
    """A number with a fixed number of decimals. Small negative numbers are "0.00" and not "-0.00".

    Example:
        >>> fixed(-1.234), fixed(-0.001), fixed(2.5, 3), fixed(float("nan"))
        ('\N{MINUS SIGN}1.23', '0.00', '2.500', 'NaN')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "\N{INFINITY}" if value > 0 else "\N{MINUS SIGN}\N{INFINITY}"
    return _ZERO.sub("", f"{value:.{digits}f}").replace("-", "\N{MINUS SIGN}")


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, and zero without one.

    Example:
        >>> signed(0.5), signed(-0.5), signed(-0.001)
        ('+0.50', '\N{MINUS SIGN}0.50', '0.00')
    """
    words = fixed(value, digits)
    return f"+{words}" if value > 0 and words.strip("0.") else words


def rounded(value: float, digits: int = 3) -> str:
    """A number with some significant digits.

    Example:
        >>> rounded(0.12345), rounded(-12.0), rounded(float("nan"))
        ('0.123', '\N{MINUS SIGN}12', 'NaN')
    """
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else fixed(value)


def percent(fraction: float) -> str:
    """A fraction as a percentage.

    Example:
        >>> [words.replace(NARROW, " ") for words in (percent(0.381), percent(0.004), percent(0.0001), percent(0))]
        ['38 %', '0.4 %', 'under 0.1 %', '0 %']
    """
    if not math.isfinite(fraction):
        return fixed(fraction)
    if 0 < fraction < 0.0005:
        return say("number.tiny_percent")
    return say("number.percent", number=fixed(100 * fraction, 0 if fraction >= 0.1 or not fraction else 1))


def quoted(words: str) -> str:
    """The text of a step, in quotes if it is short. Line ends and spaces become visible.

    Example:
        >>> quoted("word"), quoted(" "), quoted("x")
        ('word', '“␣”', '“x”')
    """
    return words if len(words.strip()) > 1 else f"“{_VISIBLE.get(words, words)}”"


def steps(count: float) -> str:
    """A number of steps in words.

    Example:
        >>> steps(1), steps(0.14), steps(2.345), steps(61.2), steps(float("inf"))
        ('1 step', '0.14 steps', '2.3 steps', '61 steps', 'ever')
    """
    if count == math.inf:
        return say("words.ever")
    if 0 < count < 0.01:
        return say("words.few_steps")
    if count >= 10 or count == int(count):
        words = fixed(count, 0)
    else:
        words = fixed(count, 1).removesuffix(".0") if count >= 0.95 else f"{count:.2g}"
    return say("words.steps", count=words)


def place(start: int, stop: int, passage: int | None = None) -> str:
    """The steps from `start` to `stop`, counted from 1, of a passage if the page has several.

    Example:
        >>> place(2, 3), place(2, 5, 0)
        ('step 3', 'steps 3 to 5 of sequence 1')
    """
    words = say("words.step", step=stop) if stop - start == 1 else say("words.step_range", first=start + 1, last=stop)
    return words if passage is None else say("words.of_sequence", place=words, sequence=passage + 1)


def data_name(part: str) -> str:
    """The name of a part of the data: "dev", "test" or "train"."""
    return {"dev": say("words.dev_data"), "test": say("words.test_data"), "train": say("words.train_data")}[part]


def named(group: str, name: str) -> str:
    """The name of a task, a score or a column of the training log: a message, or the name without underscores.

    Example:
        >>> named("score", "macro_f1"), named("score", "my_score")
        ('macro F1', 'my score')
    """
    key = f"{group}.{name}"
    return say(key) if key in current().messages else name.replace("_", " ").replace("-", " ")


def capitalised(words: str) -> str:
    """Words with a capital first letter, for the beginning of a sentence."""
    return words[:1].upper() + words[1:]
