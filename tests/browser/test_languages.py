"""Every sentence of a page comes from the catalogue of its language, and Chinese pages fit the screen."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import glassgate as gg
from glassgate.glass.languages import Language, load, speaking
from glassgate.glass.live.cell import cell_page
from glassgate.glass.page import page
from glassgate.tasks.live.page import live
from glassgate.tasks.report.study import study
from tests.browser.test_live import assert_accessible, browse  # noqa: F401
from tests.browser.test_page import WIDTHS, chromium, launch  # noqa: F401
from tests.tasks.live.runs import excerpts, trained

pytestmark = pytest.mark.browser

MARKED = Language("zh", {key: f"⸢{message}⸣" for key, message in load("zh").messages.items()})
"""Chinese whose messages are marked: words outside of the marks are not from the catalogue."""
# Texts of the data and of the code, names of gates and directions, and formulas are not sentences.
DATA = (
    "noscript, pre, code, script, style, kbd, h1, .run, textarea, [data-s], .live-paint, .answer + [dir], "
    ".words small, .gg-diagram desc, .gg-diagram g > title"
)
_WORDS = f"""() => {{
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) =>
    node.matches?.("{DATA}") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  let text = "";
  while (walker.nextNode()) {{
    const node = walker.currentNode;
    if (node.nodeType === Node.TEXT_NODE) text += node.textContent;
    else for (const name of ["aria-label", "title", "placeholder", "alt", "aria-valuetext"])
      text += ` ${{node.getAttribute(name) ?? ""}} `;
  }}
  const inner = /⸢[^⸢⸣]*⸣/g;
  while (inner.test(text)) text = text.replace(inner, " ");
  return text.match(/[A-Za-z]{{3,}}|[\\u4e00-\\u9fff]+/g) ?? [];
}}"""
_NAMES = {
    "layer",
    "forward",
    "reverse",
    "encoder",
    "decoder",
    "glassgate",
    "SVG",
    "sigmoid",
    "tanh",
    "concat",
    "LSTM",
    "GRU",
}


def words_outside(tab: Any, known: set[str]) -> set[str]:
    return {each for each in tab.evaluate(_WORDS) if each not in known | _NAMES}


@pytest.mark.parametrize("name", ["tagging", "language-model, music", "translation", "forecasting, segments"])
def test_every_sentence_is_in_the_catalogue(browse: Any, tmp_path: Path, name: str) -> None:  # noqa: F811
    torch.manual_seed(1)
    with gg.engine("reference"), speaking(MARKED):
        task = trained(name)
        shown = excerpts(task)
        made = study(task, shown, "title")
        (tmp_path / "page.html").write_text(page(made, live=live(task, shown, Path("runs"))), "utf-8")
    texts = [step for passage in made.passages for step in passage.steps]
    texts += [choice for passage in made.passages for answer in passage.answers for choice, _ in answer.best]
    known = {word for text in texts for word in re.findall("[A-Za-z]+", text)}
    for size in WIDTHS:
        tab = browse(tmp_path / "page.html", size)
        tab.get_by_role("button", name=load("zh").messages["edits.add"]).click()
        assert tab.locator("html").get_attribute("lang") == "zh"
        assert words_outside(tab, known) == set()
        assert_accessible(tab, size)


def test_the_page_of_a_cell_is_in_the_catalogue(browse: Any, tmp_path: Path) -> None:  # noqa: F811
    with speaking(MARKED):
        cell_page([gg.cells.GRU(), gg.cells.LSTM()], 2, 0).save(tmp_path / "cell.html")
    tab = browse(tmp_path / "cell.html")
    tab.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
    assert words_outside(tab, {"Glassgate"}) == set()
