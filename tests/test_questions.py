"""Each question of tests/questions.md is answered in the section that it names."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Question(NamedTuple):
    """A question, the page and section of its answer, and a text in this section."""

    words: str
    page: str
    section: str
    text: str


def questions() -> list[Question]:
    """The rows of the table."""
    rows = re.findall(
        r"^\| (.+\?) \| (\S+) \| (.*?) ?\| `(.+)` \|$",
        (ROOT / "tests/questions.md").read_text("utf-8"),
        re.MULTILINE,
    )
    return [Question(*row) for row in rows]


def section(page: str, title: str) -> str:
    """The text below a heading up to the next heading of the same or a higher level; empty if there is none."""
    text = re.sub(r"^```.*?^```$", lambda m: m[0].replace("#", "\0"), page, flags=re.MULTILINE | re.DOTALL)
    found = re.search(rf"^(##+) {re.escape(title)}$", text, re.MULTILINE)
    if found is None:
        return ""
    following = re.search(rf"^#{{2,{len(found[1])}}} ", text[found.end() :], re.MULTILINE)
    return text[found.end() : found.end() + following.start() if following else None].replace("\0", "#")


def test_each_question_is_answered_where_the_list_says() -> None:
    asked = questions()
    assert len(asked) > 100
    unanswered = []
    for each in asked:
        page = (ROOT / "docs" / each.page).read_text("utf-8")
        if each.text not in (section(page, each.section) if each.section else page):
            unanswered.append(each)
    assert not unanswered, "\n".join(map(str, unanswered))


def test_each_page_answers_a_question() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md") if ".zh-CN" not in path.name} - {"README.md"}
    assert pages <= {each.page for each in questions()}


def test_the_english_pages_are_few_and_short() -> None:
    """At most 30 pages with 48,600 words, 74 % of the 65,363 words that they had before pages were merged."""
    pages = [path for path in (ROOT / "docs").glob("*.md") if ".zh-CN" not in path.name]
    assert len(pages) <= 30
    assert sum(len(path.read_text("utf-8").split()) for path in pages) <= 48_600
