"""Numbers with a sign of a currency, a percent sign, or a letter for thousands, millions or billions."""

import re
from collections.abc import Iterable

LARGEST = 3.4e38
"""The largest absolute value of a number in data: networks and exports compute in float32."""

MARK = "[$\u20ac\u00a3\u00a5\u20b9%KMB(]"
"""A pattern of the marks."""
_IN_PARENTHESES = re.compile(r"\(([^-].*)\)")  # a negative number of accountants
_FACTORS = {"K": 1e3, "M": 1e6, "B": 1e9}
_CURRENCY = "[$\u20ac\u00a3\u00a5\u20b9]"
_GROUPS = "\u00a0\u202f '\u2019"  # between thousands
_MARKED = re.compile(rf"([+-]?) ?{_CURRENCY}? ?([+-]?\d[\d.,{_GROUPS}]*|[+-]?\.\d+) ?(%|[KMB]|{_CURRENCY})?")


GROUP_MARK = rf"(?<=\d)[{_GROUPS}](?=\d{{3}}(?!\d))"
"""A pattern of a blank or an apostrophe between groups of three digits."""


def without_mark(text: str) -> tuple[str, float]:
    """Return a number as text without its mark, and the factor of the mark. Percentages keep their number.

    Other texts are returned unchanged.

    Example:
        >>> without_mark("-$1,200"), without_mark("45%"), without_mark("1.5K"), without_mark("(3.5)")
        (('-1,200', 1.0), ('45', 1.0), ('1.5', 1000.0), ('-3.5', 1.0))
    """
    match = _MARKED.fullmatch(_IN_PARENTHESES.sub(r"-\1", text))
    if match is None:
        return text, 1.0
    return match[1] + match[2].strip(), _FACTORS.get(match[3] or "", 1.0)


def first_in_another_unit(texts: Iterable[str]) -> int | None:
    """Return the index of the first number in another unit than the numbers before it; None if all share a unit.

    Percentages are a unit, and so is each currency. A number without a mark can be in any currency.

    Example:
        >>> first_in_another_unit(["$1", "2", "\u20ac3"]), first_in_another_unit(["0.4", "45%"])
        (2, 1)
        >>> first_in_another_unit(["$1", "2", "", "$3K"])
    """
    units = set[str]()
    for index, text in enumerate(texts):
        if not without_mark(text)[0].strip():
            continue
        mark = re.search(f"%|{_CURRENCY}", text)
        units.add(mark[0] if mark else "")
        if len(units - {""}) > 1 or {"", "%"} <= units:
            return index
    return None
