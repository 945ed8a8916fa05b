"""The documentation site: each name has its place, the home page's lines run; `make docs` checks the rest."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import griffe
import pytest
import torch

import glassgate as gg

ROOT = Path(__file__).parents[1]


def constant(name: str) -> dict:
    """A constant of the site's hooks, which need MkDocs to be imported."""
    module = ast.parse((ROOT / "docs/site/pages.py").read_text("utf-8"))
    assignment = next(
        each for each in module.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name
    )
    return ast.literal_eval(assignment.value)


def test_the_reference_has_each_public_name_once() -> None:
    assert sorted(name for _, names in constant("REFERENCE").values() for name in names) == sorted(gg.__all__)


def test_the_lines_of_the_home_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/site/home.md").read_text("utf-8"), re.DOTALL)
    exec(code, {"gg": gg, "model": torch.nn.LSTM(3, 4), "x": torch.randn(6, 1, 3)})
    assert "layer0" in Path("report.html").read_text("utf-8")


def test_notebooks_are_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs/site")
    pages = importlib.import_module("notebooks").pages()
    assert {f"notebooks/{path.stem}.md" for path in (ROOT / "docs/notebooks").glob("*.ipynb")} == pages.keys()
    for address, (text, pictures) in pages.items():
        assert text.startswith("# "), address
        assert all(f"({Path(name).name})" in text for name in pictures)
        assert (text.count("```python\n") + text.count("```text ")) * 2 == text.count("```"), address
    assert pages["notebooks/gates.md"].pictures
    listed = (ROOT / "docs/README.md").read_text("utf-8")
    assert all(f"({address.removesuffix('.md')}.ipynb)" in listed for address in pages)


def test_the_words_of_pictures_on_chinese_pages_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs/site")
    chinese, notebooks = importlib.import_module("chinese"), importlib.import_module("notebooks")
    shown = {
        path: (ROOT / "docs" / path).read_text("utf-8")
        for page in (ROOT / "docs").glob("*.zh-CN.md")
        for path in chinese.pictures_of(page.read_text("utf-8"))
    }
    assert len(shown) > 20
    shown |= {name: svg for page in notebooks.pages().values() for name, svg in page.pictures.items()}
    missing = {path: [*chinese.untranslated(svg)] for path, svg in shown.items() if ".zh-CN-" not in path}
    assert not {path: words for path, words in missing.items() if words}
    assert "遗忘偏置" in chinese.translate_picture(shown["claims/forget-bias.svg"])
    assert "前向" in chinese.translate_picture(shown["claims/variants.svg"], "claims/variants.svg")


def test_lines_of_chinese_text_are_joined_without_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs/site")
    joined = importlib.import_module("chinese").joined
    assert (
        joined("一个\n句子。\n`code` 和\n词\n\n段落：\n- 项\n| 表 |") == "一个句子。`code` 和词\n\n段落：\n- 项\n| 表 |"
    )
    assert joined("```text\n第一行，\n第二行\n```") == "```text\n第一行，\n第二行\n```"


def test_old_addresses_have_pages_with_the_new_ones() -> None:
    for name, address in constant("MOVED").items():
        assert not (ROOT / f"docs/{name}.md").exists()
        new, _, anchor = address.partition("#")
        page = (
            ROOT / "benchmarks/README.md" if new == "benchmarks.html" else ROOT / "docs" / new.replace(".html", ".md")
        )
        titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}, address


def test_the_search_has_the_terms_of_the_glossary() -> None:
    words = (ROOT / "docs/site/terms.txt").read_text("utf-8").split()
    glossary = (ROOT / "docs/glossary.zh-CN.md").read_text("utf-8")
    terms = re.findall(r"^\| (.+?) \| .+ \| ", glossary, re.MULTILINE)[1:]
    han = {word for term in terms for word in re.findall(r"[\u4e00-\u9fff]{2,}", term)}
    assert not han - {*words}


def test_the_reference_shows_the_full_signatures_of_the_drop_in_layers() -> None:
    extensions = griffe.load_extensions(str(ROOT / "docs/site/docstrings.py"))
    package = griffe.load("glassgate", search_paths=[ROOT], extensions=extensions)
    for name in ("RNN", "GRU", "LSTM"):
        layer = package[f"layers.drop_in.{name}"]
        shown = [each.name for each in layer.parameters if each.name != "self"]
        assert shown == [*inspect.signature(getattr(gg, name)).parameters], name
        assert "zoneout: " in layer.docstring.value, name
