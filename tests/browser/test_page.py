"""The report in a real Chromium: cursor, targets, layers, theme, keyboard; no request, no error, no fault for axe.

`make browser` runs these; the ordinary test run leaves them out.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glassgate as gg
from glassgate.glass.page import page
from glassgate.tasks import task_class
from glassgate.tasks.study import given, study
from tests.tasks.test_every_task import SPLITS

pytestmark = pytest.mark.browser

AXE = Path("build/browser/node_modules/axe-core/axe.min.js")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WIDTHS = {"desktop": (1280, 900), "phone": (390, 800)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a tagger, of a classifier of two layers, and of a recording of a projected layer-normalised LSTM."""
    folder = tmp_path_factory.mktemp("pages")
    small = {"hidden_size": 6, "embedding_size": 5, "epochs": 1, "threads": 1}
    found = {}
    for name, text, more in (
        ("tagging", "play it now stop it", {}),
        ("classification", "good day", {"cell": "gru", "num_layers": 2}),
        ("language-model", 'tick "tock" (tick)\ntock', {}),
    ):
        kind = task_class(name)
        task = kind(kind.options_type.from_mapping(small | more))
        task.fit(SPLITS[name])
        found[name] = folder / f"{name}.html"
        found[name].write_text(page(study(task, given(task, text), name)), encoding="utf-8")
    layer = gg.Recurrent(gg.cells.LayerNormLSTM(), 3, 8, proj_size=4)
    with gg.record(layer) as tape:
        output, _ = layer(torch.randn(30, 1, 3))
    output[-1].sum().backward()
    found["tape"] = folder / "tape.html"
    tape.report(found["tape"])
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A fresh browser; its pages fail the test on an error in the console, and on any request."""
    api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    assert program, "these tests need a chromium: apt-get install chromium"
    with api.sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        context = playwright.chromium.launch_persistent_context(
            folder, executable_path=program, headless=True, args=FLAGS.split(), color_scheme="light"
        )
        yield context
        context.close()


@pytest.fixture
def browse(chromium: Any, pages: dict[str, Path]) -> Iterator[Any]:
    wrong: list[str] = []
    opened = []

    def open_page(name: str, size: str = "desktop") -> Any:
        tab = chromium.new_page()
        width, height = WIDTHS[size]
        tab.set_viewport_size({"width": width, "height": height})
        tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda asked: wrong.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
        tab.goto(pages[name].as_uri())
        opened.append(tab)
        return tab

    yield open_page
    for tab in opened:
        tab.close()
    assert not wrong


def stands_at(tab: Any, place: str) -> None:
    """Wait until the cursor is there; the page's policy lets no test evaluate text in it."""
    for _ in range(100):
        if tab.locator("#now").inner_text().startswith(place):
            return
        tab.wait_for_timeout(20)
    raise AssertionError(f"expected {place!r}, got {tab.locator('#now').inner_text()!r}")


def test_the_cursor_moves_by_pointer_and_by_keyboard(browse: Any) -> None:
    tab = browse("tagging")
    said = tab.locator("#now")
    assert said.inner_text().startswith("step 1 of 5 reads play")
    tab.locator('[data-s="2"]').hover()
    stands_at(tab, "step 3 of 5 reads now")
    before = tab.locator("#wires").inner_text()
    tab.keyboard.press("ArrowRight")
    stands_at(tab, "step 4 of 5 reads stop")
    assert tab.locator("#wires").inner_text() != before
    assert tab.locator(".u.on").inner_text().startswith("stop")
    unit = tab.locator("#unit").input_value()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowUp")
    assert tab.locator("#unit").input_value() == unit or unit == "5"
    tab.locator(".part.chosen .heat.time .pane").first.click(position={"x": 5, "y": 10})
    stands_at(tab, "step 1 of 5")
    tab.locator(".heat.matrix .pane").first.click(position={"x": 5, "y": 200})
    tab.wait_for_timeout(200)
    assert not said.inner_text().startswith("step 1 of 5")
    assert "mattered most" in tab.locator(".heat.matrix output").inner_text()


def test_layers_units_and_shades_are_chosen(browse: Any) -> None:
    tab = browse("classification")
    assert tab.locator("#part option").count() == 4
    tab.locator("#part").select_option("3")
    assert tab.locator(".part.chosen").first.get_attribute("data-part") == "layer1.reverse"
    tab.keyboard.press("Escape")
    tab.locator("h1").click()
    tab.keyboard.press("l")
    assert tab.locator("#part").input_value() == "0"
    tab.locator("#shade").select_option("?mattered")
    tab.wait_for_timeout(100)
    assert {"p10", "n10"} & set(
        " ".join(tab.locator(".passage .u").evaluate_all("e => e.map(x => x.className)")).split()
    )
    tab.locator("#unit").fill("3")
    tab.wait_for_timeout(100)
    assert tab.locator(".part.chosen .dot.on").first.get_attribute("data-u") == "3"


def test_the_theme_changes(browse: Any) -> None:
    tab = browse("tagging")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.keyboard.press("t")
    dark = tab.evaluate(ground)
    assert light != dark
    tab.locator("#theme").click()
    assert tab.evaluate(ground) == light
    tab.emulate_media(color_scheme="dark")
    assert browse("tape").evaluate(ground) == light


def test_a_plot_is_saved_as_svg(browse: Any, tmp_path: Path) -> None:
    tab = browse("tape")
    with tab.expect_download() as found:
        tab.locator("#memory .save").first.click(force=True)
    found.value.save_as(tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text("utf-8")
    assert text.startswith("<svg")
    assert 'stroke="rgb(' in text


@pytest.mark.parametrize("name", ["tagging", "classification", "language-model", "tape"])
@pytest.mark.parametrize("size", WIDTHS)
def test_no_serious_fault_and_nothing_wider_than_the_page(browse: Any, name: str, size: str) -> None:
    tab = browse(name, size)
    assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[size][0]
    assert AXE.exists(), "these tests need axe-core: make browser"
    tab.evaluate(AXE.read_text("utf-8"))
    found = tab.evaluate("axe.run()")["violations"]
    serious = [
        (each["id"], [node["html"][:120] for node in each["nodes"]][:4])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious


def test_it_reads_without_a_script(pages: dict[str, Path], chromium: Any) -> None:
    text = pages["classification"].read_text("utf-8").replace("<script>", "<!--", 1)
    tab = chromium.new_page()
    tab.set_content(text.split("<!--")[0])
    assert tab.locator("#bar").is_hidden()
    assert tab.locator(".part").count() == tab.locator(".part:visible").count() > 8
    assert tab.locator("svg:visible").count() > 20
    tab.close()
