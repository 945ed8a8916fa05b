"""The columns of a table: the numbers in their cells, the kind of their values, their usual names, and headers.

| kind of a column | values |
|---|---|
| number | numbers, of which some may be missing |
| time | dates or times of day |
| word | single words |
| text | texts of several words |
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

NUMBER, TIME, WORD, TEXT = "number", "time", "word", "text"

# The usual names of columns or keys, in lower case.
TOKEN_COLUMNS = ("tokens", "words", "units", "token", "word", "form", "text")
TAG_COLUMNS = (
    *("ner_tags", "tags", "labels", "pos_tags", "upos", "pos", "ner", "ner_tag", "tag", "label", "xpos"),
    *("chunk", "bio", "iob", "iob2", "entity"),
)
SPAN_COLUMNS = ("entities", "spans")
SENTENCE_COLUMNS = (
    *("sentence", "sentence #", "sentence_id", "sentence id", "sentence_idx", "sent_id", "sent", "sent_idx"),
)
TEXT_COLUMNS = ("text", "sentence", "content", "review", "utterance", "comment", "tweet", "message", "headline")
LABEL_COLUMNS = ("label", "labels", "class", "category", "sentiment", "intent", "target", "topic")
_USUAL_NAMES = {"id", "source", "target", *LABEL_COLUMNS, *TAG_COLUMNS, *TEXT_COLUMNS, *TOKEN_COLUMNS}

MISSING_NUMBERS = (
    *("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None", "?", ".", "..", "..."),
    *("-", "--", "---", "\u2013", "\u2014"),
)
"""The texts that denote a missing number."""
LARGEST = 3.4e38
"""The largest absolute value of a number in data: networks and exports compute in float32."""
MARK = r"[^\d\s.,+\-eE'\u2019]"
"""A pattern of characters that plain numbers lack."""
_GROUPS = "\u00a0\u202f '\u2019"  # between thousands
GROUP_MARK = rf"(?<=\d)[{_GROUPS}](?=\d{{3}}(?!\d))"
"""A pattern of a blank or an apostrophe between groups of three digits."""
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?")  # also lakhs: 12,34,567
_IN_PARENTHESES = re.compile(r"\(([^-].*)\)")  # a negative number of accountants
_FACTORS = {"K": 1e3, "M": 1e6, "B": 1e9}
_CURRENCY = "[$\u20ac\u00a3\u00a5\uffe5\u20b9\u20a9\u5143\u5186]|CHF|USD|EUR|GBP|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK"
_NO_UNITS = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|[ap]\\.?m\\.?$|ad$|bc$|b?ce$|uhr$|[kmb]$)"
_UNITS = "[kcmdn]?m|k?g|mg|m?l|t|lb|oz|ft|[kMG]?Wh?|[kMG]?Hz|[hkM]?Pa|m?bar|m?[VAs]|min|h|mph|ppm|ppb"
_UNIT = rf" (?!{_NO_UNITS})[^\W\d_][^\s\d]{{0,7}}| ?[°℃℉µμ‰Ω][^\s\d]{{0,5}}|(?:{_UNITS})(?:/(?:{_UNITS}))?[²³]?"
_MARKED = re.compile(
    rf"([+-]?) ?(?P<before>{_CURRENCY})? ?([+-]?\d[\d.,{_GROUPS}]*|[+-]?\.\d+)"
    rf"(?: ?(?P<after>%|[KMB]|{_CURRENCY})|(?P<unit>{_UNIT}))?"
)

_MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAY = "((Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
_DATE = re.compile(
    r"\d{1,4}[-/.年]\d{1,2}([-/.月]\d{1,4}日?)?([ T]+\d.*)?|(19|20)\d\d[01]\d[0-3]\d|\d{1,2}:\d\d(:\d\d(\.\d+)?)?"
    r"|\d{4}[ -]?Q[1-4]|Q[1-4][ /-]?\d{4}|\d{4}[ -]?[MW]\d{2}"
    r"|[^\W\d_]{3,}\.? (19|20)\d\d"
    rf"|{_WEEKDAY}(\d{{1,2}}[ -])?{_MONTH}([ -]\d{{1,2}},?)?[ -]\d{{2,4}}( \d{{1,2}}:\d\d.*)?"
)
_NAME = re.compile(r"[^\W\d]\w*")
_NUMERIC_TIME = re.compile(r"\d{1,4}[-/.:]\d{1,2}([-/.:]\d{1,4})?(\.\d+)?")
_SENTENCE = re.compile("[\u3040-\u30ff\u3400-\u9fff]{6}")

_MIN_COUNTED, _MIN_YEARS = 8, 4  # columns whose names are consecutive numbers, or years
_FIRST_YEAR = 1500
_MAX_NAME, _MAX_NAME_WORDS = 40, 4  # characters and words of the name of a column
MIN_FITTING = 0.95  # the fraction of the rows that have the usual number of cells, and of the cells that fit a kind


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: the cell of the header; without a header the number of the column, from 1
        values: the examined values
        groups: the values of each sequence, in files with a token per row; or the values of each cell that is a list
    """

    name: str
    values: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def kind(self) -> str:
        """One of the kinds above."""
        return kind_of(self.values)

    @cached_property
    def distinct(self) -> int:
        """The number of distinct values."""
        return len({*self.values})

    @property
    def may_be_labels(self) -> bool:
        """Whether the values repeat as those of labels do: half as many distinct values as rows, or fewer."""
        return self.distinct > 1 and 2 * self.distinct <= len(self.values)

    @property
    def mean_words(self) -> float:
        """The mean number of words of a value."""
        return sum(len(value.split()) for value in self.values) / max(1, len(self.values))

    @property
    def are_whole_numbers(self) -> bool:
        """Whether all values are whole numbers, such as 2, -1 or 1.0."""
        numbers = [parse_mark(value).number for value in self.values]
        return self.kind == NUMBER and all(is_number(number) and float(number).is_integer() for number in numbers)

    @property
    def counts_rows(self) -> bool:
        """Whether each value is the previous one plus 1."""
        if not self.are_whole_numbers or len(self.values) < 2:
            return False
        numbers = [float(parse_mark(value).number) for value in self.values]
        return all(number == numbers[0] + k for k, number in enumerate(numbers))


def last_name(name: str) -> str:
    """Return the name of a column or of a nested key in lower case, without the keys that lead to it."""
    return name.strip().lower().rpartition(".")[2]


def cell_text(value: Any) -> str:
    """Return the value of a cell as text; empty if it is missing."""
    return "" if value is None else str(value)


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False


def is_number_or_time(text: str) -> bool:
    """Whether a text is a finite number, or digits in the form of a date or of a time of day."""
    return is_number(text) or bool(_NUMERIC_TIME.fullmatch(text))


def number_or_nan(text: str) -> float:
    """Return the number in a cell; NaN if it is missing. Other cells raise a ValueError."""
    text = text.strip()
    return float("nan") if text in MISSING_NUMBERS else float(text)


class Marked(NamedTuple):
    """A number as text without its mark, the factor of the mark, and the currency, the percent sign or the unit."""

    number: str
    factor: float = 1.0
    currency: str = ""
    unit: str = ""


def parse_mark(text: str) -> Marked:
    """Separate a number from its mark: a currency, a percent sign, a unit, or a letter for thousands or millions.

    Percentages keep their number; other texts are returned unchanged.

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


def kind_of(values: Sequence[str]) -> str:
    """Return the kind of the values of a column. Numbers have one unit at most; their currencies may differ."""
    present = [value for value in values if value not in MISSING_NUMBERS]
    if not present:
        return NUMBER
    if sum(map(_is_time, present)) >= MIN_FITTING * len(present):
        return TIME
    if sum(map(_is_number_of_any_country, present)) >= MIN_FITTING * len(present):
        units = {parse_mark(value).unit for value in present} - {""}
        if len(units) < 2:
            return NUMBER
    return TEXT if sum(map(is_text, present)) > (1 - MIN_FITTING) * len(present) else WORD


def is_text(text: str) -> bool:
    """Whether a text has several words, which Chinese and Japanese write without blanks."""
    return " " in text or bool(_SENTENCE.search(text))


def _is_time(text: str) -> bool:
    return bool(_DATE.fullmatch(text)) and not is_number(text)


def _is_number_of_any_country(text: str) -> bool:
    text = parse_mark(text).number
    text = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
    text = re.sub(GROUP_MARK, "", text)
    return is_number(text) or is_number(text.replace(".", "").replace(",", "."))


def names_columns(first: Sequence[str], rows: Sequence[Sequence[str]], needs_numbers: bool = False) -> bool:
    """Whether the first row of a table names the columns of the rows below.

    It is blank or contains a usual name; or a column of numbers or times has neither in the first row, or its numbers
    count the columns, such as years; or all its cells are short, and a column whose values repeat lacks the one in this
    row; or its cells are single words, and nearly all cells below are texts. Without rows below, it is a header unless
    it contains only numbers.

    Args:
        needs_numbers: whether a table without columns of numbers is not read; its first row is taken for a header
    """
    first = [cell.strip() for cell in first]
    if not rows:
        return any(kind_of([cell]) != NUMBER for cell in first)
    columns = [(name, [row[index].strip() for row in rows]) for index, name in enumerate(first)]
    if not any(first) or any(_is_usual_name(name, values) for name, values in columns):
        return True
    filled = [(name, values, kind_of(values)) for name, values in columns if any(values)]
    numeric = [(name, kind) for name, _, kind in filled if kind in (NUMBER, TIME) and name]
    if numeric:
        numbers = [int(name) for name, _ in numeric if name.isdecimal()]
        least = _MIN_YEARS if numbers and numbers[0] >= _FIRST_YEAR else _MIN_COUNTED
        counts = len(numbers) >= least and numbers == list(range(numbers[0], numbers[0] + len(numeric)))
        return counts or any(kind_of([name]) != kind for name, kind in numeric)
    if needs_numbers:
        return True
    repeating = [(name, values) for name, values, _ in filled if 2 * len({*values}) <= len(values)]
    texts = [value for _, values, _ in filled for value in values]
    if sum(map(is_text, texts)) >= MIN_FITTING * len(texts) and all(map(_NAME.fullmatch, first)):
        return True
    are_short = all(len(name) <= _MAX_NAME and len(name.split()) <= _MAX_NAME_WORDS for name in first)
    return bool(repeating) and are_short and not any(name in values for name, values in repeating)


def _is_usual_name(name: str, values: Sequence[str]) -> bool:
    """Whether a cell is a usual name, and not one of the labels below it, such as "pos" and "neg"."""
    return name.lower() in _USUAL_NAMES and values.count(name) <= (1 - MIN_FITTING) * len(values)
