"""Generated pairs for translation: numbers and dates in English, and in digits."""

import random
from collections.abc import Iterator
from datetime import date, timedelta

from glassgate.tasks.data.pairs import Pair

# fmt: off
_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)
# fmt: on
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
_ORDINALS |= {"twelve": "twelfth"}
_FIRST = date(1900, 1, 1)
_DAYS = 55_000  # into the year 2050


def spoken(number: int) -> str:
    """Return a number below a million in words.

    Example:
        >>> spoken(20_305)
        'twenty thousand three hundred and five'
    """
    if number < 20:
        return _UNITS[number]
    if number < 100:
        tens, units = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_UNITS[units]}" if units else "")
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            many, rest = divmod(number, size)
            joint = " and " if rest and rest < 100 else " "
            return f"{spoken(many)} {name}{joint}{spoken(rest) if rest else ''}".strip()
    raise AssertionError("the number is a million or more")


def ordinal(number: int) -> str:
    """Return the ordinal of a number in words.

    Example:
        >>> ordinal(21), ordinal(30)
        ('twenty-first', 'thirtieth')
    """
    head, dash, last = spoken(number).rpartition("-")
    if last in _ORDINALS:
        return head + dash + _ORDINALS[last]
    return head + dash + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def dates_and_numbers(count: int, seed: int = 1) -> list[Pair]:
    """Return distinct pairs.

    Example:
        >>> [(pair.source, pair.target) for pair in dates_and_numbers(2)]
        [('four', '4'), ('seven thousand seven hundred and thirty-seven', '7737')]
    """
    made: dict[str, str] = {}
    pairs = _pairs(random.Random(seed))
    while len(made) < count:
        source, target = next(pairs)
        made.setdefault(source, target)
    return [Pair(source, target, "made by rule") for source, target in made.items()]


def _pairs(random: random.Random) -> Iterator[tuple[str, str]]:
    while True:
        if random.random() < 0.3:
            number = random.randrange(10 ** random.randrange(1, 7))
            yield spoken(number), str(number)
        else:
            day = _FIRST + timedelta(random.randrange(_DAYS))
            yield random.choice(list(_ways(day))), day.isoformat()


def _ways(day: date) -> Iterator[str]:
    month, year = _MONTHS[day.month - 1], spoken_year(day.year)
    place = ordinal(day.day)
    short = f"{day.day}{place[-2:]}"
    yield f"{place} of {month} {day.year}"
    yield f"the {place} of {month} {year}"
    yield f"{month} {place}, {year}"
    yield f"{month} {day.day}, {day.year}"
    yield f"{short} {month} {day.year}"
    yield f"{day.day} {month[:3]} {day.year}"
    yield f"{day.month}/{day.day}/{day.year}"


def spoken_year(year: int) -> str:
    """Return a year in words.

    Example:
        >>> spoken_year(1987), spoken_year(1905), spoken_year(2007)
        ('nineteen eighty-seven', 'nineteen oh five', 'two thousand and seven')
    """
    century, rest = divmod(year, 100)
    if 2000 <= year < 2010:
        return spoken(year)
    if rest == 0:
        return f"{spoken(century)} hundred"
    return f"{spoken(century)} {'oh ' if rest < 10 else ''}{spoken(rest)}"
