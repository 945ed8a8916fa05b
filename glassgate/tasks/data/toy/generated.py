"""Generated data: pairs of numbers and dates, from English to digits, for translation; a series for forecasting."""

import random
from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np

from glassgate.tasks.data.pairs import Pair

# fmt: off
_BELOW_TWENTY = (
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
_FIRST_DAY = date(1900, 1, 1)
_NUM_DAYS = 55_000  # the last day is in the year 2050


def spoken(number: int) -> str:
    """Return a number below a million in words.

    Example:
        >>> spoken(20_305)
        'twenty thousand three hundred and five'
    """
    if number < 20:
        return _BELOW_TWENTY[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_BELOW_TWENTY[ones]}" if ones else "")
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            quotient, rest = divmod(number, size)
            separator = " and " if rest and rest < 100 else " "
            return f"{spoken(quotient)} {name}{separator}{spoken(rest) if rest else ''}".strip()
    raise AssertionError("the number is a million or more")


def ordinal(number: int) -> str:
    """Return the ordinal of a number in words.

    Example:
        >>> ordinal(21), ordinal(30)
        ('twenty-first', 'thirtieth')
    """
    head, hyphen, last_word = spoken(number).rpartition("-")
    if last_word in _ORDINALS:
        return head + hyphen + _ORDINALS[last_word]
    return head + hyphen + (last_word[:-1] + "ieth" if last_word.endswith("y") else last_word + "th")


def dates_and_numbers(count: int, seed: int = 1) -> list[Pair]:
    """Return pairs with distinct sources.

    Example:
        >>> [(pair.source, pair.target) for pair in dates_and_numbers(2)]
        [('four', '4'), ('seven thousand seven hundred and thirty-seven', '7737')]
    """
    targets: dict[str, str] = {}
    pairs = _random_pairs(random.Random(seed))
    while len(targets) < count:
        source, target = next(pairs)
        targets.setdefault(source, target)
    return [Pair(source, target, "made by rule") for source, target in targets.items()]


def _random_pairs(rng: random.Random) -> Iterator[tuple[str, str]]:
    while True:
        if rng.random() < 0.3:
            number = rng.randrange(10 ** rng.randrange(1, 7))
            yield spoken(number), str(number)
        else:
            day = _FIRST_DAY + timedelta(rng.randrange(_NUM_DAYS))
            yield rng.choice(_spellings(day)), day.isoformat()


def _spellings(day: date) -> list[str]:
    month, year, day_ordinal = _MONTHS[day.month - 1], day.year, ordinal(day.day)
    return [
        f"{day_ordinal} of {month} {year}",
        f"the {day_ordinal} of {month} {spoken_year(year)}",
        f"{month} {day_ordinal}, {year}",
        f"{month} {day.day}, {year}",
        f"{day.day}{day_ordinal[-2:]} {month} {year}",
        f"{day.day} {month[:3]} {year}",
        f"{day.month}/{day.day}/{year}",
    ]


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


def hourly_series(seed: int = 0, steps: int = 24 * 7 * 20) -> tuple[np.ndarray, np.ndarray]:
    """Return time stamps and values with a trend, daily and weekly seasons, and noise, `(L,)` each.

    Example:
        >>> times, values = hourly_series(steps=3)
        >>> times.astype(str).tolist()[1], values.shape
        ('2024-01-01T01:00:00.000000', (3,))
    """
    random = np.random.default_rng(seed)
    hours = np.arange(steps)
    times = np.datetime64("2024-01-01", "us") + hours.astype("timedelta64[h]")
    daily_season = np.sin(2 * np.pi * (hours - 8) / 24) + 0.4 * np.sin(4 * np.pi * (hours - 3) / 24)
    is_weekend = (hours // 24 % 7) >= 5
    slow_noise = np.zeros(steps)
    for step in range(1, steps):
        slow_noise[step] = 0.9 * slow_noise[step - 1] + 0.3 * random.normal()
    values = 100 + 0.01 * hours + 12 * daily_season * np.where(is_weekend, 0.5, 1.0) - 8 * is_weekend + 2 * slow_noise
    return times, values + random.normal(size=steps)
