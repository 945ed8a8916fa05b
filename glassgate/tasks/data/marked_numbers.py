"""Numbers with a currency, a percent sign, a unit such as °C, or a letter for thousands, millions or billions."""

import re
from collections.abc import Iterable
from typing import NamedTuple

LARGEST = 3.4e38
"""The largest absolute value of a number in data: networks and exports compute in float32."""

MARK = r"[^\d\s.,+\-eE'\u2019]"
"""A pattern of characters that plain numbers lack."""
_IN_PARENTHESES = re.compile(r"\(([^-].*)\)")  # a negative number of accountants
_FACTORS = {"K": 1e3, "M": 1e6, "B": 1e9}
_CURRENCY = "[$\u20ac\u00a3\u00a5\uffe5\u20b9\u20a9\u5143\u5186]|CHF|USD|EUR|GBP|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK"
_GROUPS = "\u00a0\u202f '\u2019"  # between thousands
_NO_UNITS = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|[ap]\\.?m\\.?$|ad$|bc$|b?ce$|uhr$|[kmb]$)"
_UNITS = "[kcmdn]?m|k?g|mg|m?l|t|lb|oz|ft|[kMG]?Wh?|[kMG]?Hz|[hkM]?Pa|m?bar|m?[VAs]|min|h|mph|ppm|ppb"
_UNIT = rf" (?!{_NO_UNITS})[^\W\d_][^\s\d]{{0,7}}| ?[°℃℉µμ‰Ω][^\s\d]{{0,5}}|(?:{_UNITS})(?:/(?:{_UNITS}))?[²³]?"
_MARKED = re.compile(
    rf"([+-]?) ?(?P<before>{_CURRENCY})? ?([+-]?\d[\d.,{_GROUPS}]*|[+-]?\.\d+)"
    rf"(?: ?(?P<after>%|[KMB]|{_CURRENCY})|(?P<unit>{_UNIT}))?"
)


GROUP_MARK = rf"(?<=\d)[{_GROUPS}](?=\d{{3}}(?!\d))"
"""A pattern of a blank or an apostrophe between groups of three digits."""


class Marked(NamedTuple):
    """A number as text without its mark, the factor of the mark, and the currency, the percent sign or the unit."""

    number: str
    factor: float = 1.0
    currency: str = ""
    unit: str = ""


def parse_mark(text: str) -> Marked:
    """Separate a number from its mark. Percentages keep their number; other texts are returned unchanged.

    Example:
        >>> parse_mark("-$1,200")[:3], parse_mark("45%")[:3], parse_mark("1.5K")[:2], parse_mark("(3.5)").number
        (('-1,200', 1.0, '$'), ('45', 1.0, '%'), ('1.5', 1000.0), '-3.5')
        >>> parse_mark("21.5 °C").unit, parse_mark("30km/h").unit, parse_mark("3 May").unit
        ('°C', 'km/h', '')
    """
    match = _MARKED.fullmatch(_IN_PARENTHESES.sub(r"-\1", text))
    if match is None:
        return Marked(text)
    after = match["after"] or ""
    currency = match["before"] or (after if after not in _FACTORS else "")
    return Marked(match[1] + match[3].strip(), _FACTORS.get(after, 1.0), currency, (match["unit"] or "").strip())


def first_in_another_unit(texts: Iterable[str]) -> int | None:
    """Return the index of the first number in another unit than the numbers before it; None if all share a unit.

    Percentages are a unit, and so is each currency. A number without a mark can be in any unit except percent.

    Example:
        >>> first_in_another_unit(["$1", "2", "\u20ac3"]), first_in_another_unit(["0.4", "45%"])
        (2, 1)
        >>> first_in_another_unit(["$1", "2", "", "$3K"])
    """
    units = set[str]()
    for index, text in enumerate(texts):
        marked = parse_mark(text)
        if not marked.number.strip():
            continue
        units.add(marked.currency + marked.unit)
        if len(units - {""}) > 1 or {"", "%"} <= units:
            return index
    return None
