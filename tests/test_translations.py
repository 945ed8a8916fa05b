"""Chinese pages and notebooks follow the English ones: headings, code, figures, table rows, links and terms."""

import io
import json
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTIONS = {"own-cells": "From a paper to a model"}
"""The section that a Chinese page translates, if it is not the whole page."""
OTHER_TERMS = ("奈特", "细胞状态", "单元状态", "隐层单元", "忘记门", "圣咏", "赞美诗")
"""Words for which the glossary has another term."""
CHINESE = sorted([ROOT / "README.zh-CN.md", *ROOT.glob("docs/*.zh-CN.md")])
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.zh-CN.ipynb"))
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LETTERS = re.compile(r"[A-Za-z]{3}")


def english(page: Path) -> str:
    """The English text that a Chinese page translates."""
    name = page.name.replace(".zh-CN", "")
    text = page.with_name(name).read_text("utf-8")
    if title := SECTIONS.get(name.removesuffix(".md")):
        text = "# " + re.split(rf"^## (?={title}$)", text, flags=re.MULTILINE)[1]
        text = re.split(r"^## ", text, flags=re.MULTILINE)[0].replace("\n### ", "\n## ")
    return text


def blocks(text: str) -> list[str]:
    """The fenced blocks of a text, fences included."""
    return re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[str]:
    """The levels of the headings of a text, in order."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(#+) ", outside, re.MULTILINE)


def without_comments(code: str) -> list[str]:
    """The lines of code in Python or of a shell, without comments and docstrings."""
    lines = re.sub(r'"""[^"]*"""', '"""', code).splitlines()
    return [re.sub(r"(^|\s+)#\s.*$", "", line) for line in lines]


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.stem)
def test_a_chinese_page_has_the_structure_of_the_english_one(page: Path) -> None:
    ours, theirs = page.read_text("utf-8"), english(page)
    assert headings(ours) == headings(theirs)
    assert [without_comments(block) for block in blocks(ours)] == [without_comments(block) for block in blocks(theirs)]
    pictures = r"!\[[^\]]*\]\(([^)]+)\)"
    assert re.findall(pictures, ours) == re.findall(pictures, theirs)
    assert len(re.findall(r"^\|", ours, re.MULTILINE)) == len(re.findall(r"^\|", theirs, re.MULTILINE))


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.stem)
def test_a_chinese_page_has_the_numbers_of_the_english_one(page: Path) -> None:
    assert numbers(page.read_text("utf-8")) == numbers(english(page))


def numbers(text: str) -> list[str]:
    """The numbers of at least two digits outside of code and addresses, sorted. Smaller ones may be words."""
    outside = re.sub(r"^```.*?^```$|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.MULTILINE | re.DOTALL)
    return sorted(re.findall(r"\d[\d,.:]*\d", outside))


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.stem)
def test_a_chinese_page_links_to_chinese_pages_where_they_exist(page: Path) -> None:
    original = page.name.replace(".zh-CN", "")
    for name, note in re.findall(r"\[[^\]!]*\]\(([^)#:]+\.md)(?:#[^)]*)?\)(（英文）)?", page.read_text("utf-8")):
        if ".zh-CN." not in name and name != original:
            stem = Path(name).stem
            assert note, f"write （英文） after the link to {name}"
            assert stem in SECTIONS or not (page.parent / name).with_name(f"{stem}.zh-CN.md").exists(), name


@pytest.mark.parametrize("path", [*CHINESE, *NOTEBOOKS], ids=lambda path: path.name)
def test_comments_are_chinese_and_terms_are_those_of_the_glossary(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    else:
        codes = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for code in codes:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            is_text = token.type == tokenize.COMMENT and not token.line.strip().startswith("print(")
            if is_text and not token.string.startswith(("# True", "# False", "# int ")) and "noqa" not in token.string:
                assert _HAN.search(token.string) or not _LETTERS.search(token.string), token.line
    for term in OTHER_TERMS:
        assert term not in text or path.name == "glossary.zh-CN.md", term


QUESTIONS = {
    "遗忘门": ("student", "方程"),
    "八次乘法": ("student", "从八次乘法到两次"),
    "行序": ("student", "门的行序"),
    "batch_first": ("student", "整个序列与 batch_first"),
    "最终状态": ("student", "两个方向"),
    "投影": ("student", "投影"),
    "梯度裁剪": ("student", "初始化与梯度裁剪"),
    "梯度为什么能保留": ("student", "梯度为什么能保留下来"),
    "双向语言模型": ("why-lstm", "两个方向"),
    "中文标注": ("tagging", "中文文本"),
}
"""Ten questions of a reader of a tutorial, as words for the search, with the page and the section of the answer."""


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_reader_of_a_tutorial_finds_an_answer_in_two_clicks(words: str) -> None:
    """The first click opens the page from the README, the second one the section."""
    name, section = QUESTIONS[words]
    assert f"](docs/{name}.zh-CN.md)" in (ROOT / "README.zh-CN.md").read_text("utf-8")
    page = (ROOT / f"docs/{name}.zh-CN.md").read_text("utf-8")
    assert re.search(rf"^##+ {section}$", page, re.MULTILINE)
    assert name != "student" or f"[{section}](#" in page


def test_both_glossaries_have_the_same_terms() -> None:
    row = re.compile(r"^\| (.+?) \| (.+?) \| ", re.MULTILINE)
    [ours, theirs] = [
        row.findall((ROOT / "docs" / name).read_text("utf-8"))[1:] for name in ("glossary.md", "glossary.zh-CN.md")
    ]
    assert ours == [(term, chinese) for chinese, term in theirs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_chinese_notebook_has_the_code_of_the_english_one(path: Path) -> None:
    both = [path, path.with_name(path.name.replace(".zh-CN", ""))]
    [ours, theirs] = [json.loads(each.read_text("utf-8"))["cells"] for each in both]
    assert [cell["cell_type"] for cell in ours] == [cell["cell_type"] for cell in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if one["cell_type"] == "code":
            assert syntax("".join(one["source"])) == syntax("".join(other["source"]))


def syntax(code: str) -> list[str]:
    """The tokens of code, without comments. Texts count as equal."""
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return ["text" if t.type == tokenize.STRING else t.string for t in tokens if t.type not in ignored]
