"""The report in Chromium: cursor, layers, search, theme, keyboard, touch. No page makes requests or has errors.

`make browser` runs these tests. Other test runs leave them out.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.page import page
from glassgate.tasks import task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.study import Excerpt, excerpts_of_run, excerpts_of_text, study
from glassgate.tasks.task import Split
from tests.glass.test_measures import Leaky
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
    """A page of each kind: tasks on texts and series, translation, a forecast, recordings, a custom cell."""
    folder = tmp_path_factory.mktemp("pages")
    small = {"hidden_size": 6, "embedding_size": 5, "epochs": 1, "threads": 1}
    paths = {}
    for name, text, more in (
        ("tagging", "play it now stop it", {}),
        ("classification", "good day", {"cell": "gru", "num_layers": 2}),
        ("language-model", 'tick "tock" (tick)\ntock', {}),
        ("translation", "one two", {"source_tokens": "word", "target_tokens": "word"}),
    ):
        kind = task_class(name)
        task = kind(kind.options_type.from_mapping(small | more))
        task.fit(SPLITS[name])
        paths[name] = folder / f"{name}.html"
        shown = excerpts_of_text(task, text) if name != "translation" else [Excerpt(Pair(text, "two one"), 0, 2)]
        paths[name].write_text(page(study(task, shown, name)), encoding="utf-8")
        if name == "tagging":
            paths["pair"] = folder / "pair.html"
            both = [study(task, shown, run) for run in ("first", "second")]
            paths["pair"].write_text(page(*both), encoding="utf-8")
    kind = task_class("forecasting")
    task = kind(kind.options_type.from_mapping(small | {"horizon": 4, "look_back": 12, "model": "recursive"}))
    task.fit()
    paths["forecasting"] = folder / "forecasting.html"
    paths["forecasting"].write_text(
        page(study(task, excerpts_of_run(task, Progress()), "forecasting")), encoding="utf-8"
    )
    kind = task_class("classification")
    task = kind(kind.options_type.from_mapping(small))
    waves = [np.sin(np.arange(30)[:, None] * [speed, 2 * speed]).astype(np.float32) for speed in (0.2, 0.5)]
    rows = [Labelled(wave, name) for wave, name in zip(waves, ("slow", "fast"), strict=True)] * 4
    task.fit(Split(rows, rows[:2]))
    paths["series"] = folder / "series.html"
    paths["series"].write_text(
        page(study(task, [Excerpt(each, 0, 30) for each in rows[:2]], "waves")), encoding="utf-8"
    )
    for name, layer in (
        ("two layers", gg.GRU(3, 8, num_layers=2, bidirectional=True)),
        ("normalised", gg.Recurrent(gg.cells.LayerNormLSTM(), 3, 8, proj_size=4)),
        ("custom cell", gg.Recurrent(Leaky(), 3, 8)),
    ):
        with gg.record(layer) as tape:
            output, _ = layer(torch.randn(30, 1, 3))
        output[-1].sum().backward()
        paths[name] = folder / f"{name}.html"
        tape.report(paths[name])
    return paths


@pytest.fixture(scope="module")
def launch() -> Iterator[Callable[..., Any]]:
    """Starts a fresh browser with the given options."""
    api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    assert program, "these tests need a chromium: apt-get install chromium"
    with api.sync_playwright() as playwright, ExitStack() as stack:

        def start(**options: Any) -> Any:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            context = playwright.chromium.launch_persistent_context(
                folder, executable_path=program, headless=True, args=FLAGS.split(), color_scheme="light", **options
            )
            stack.callback(context.close)
            return context

        yield start


@pytest.fixture(scope="module")
def chromium(launch: Callable[..., Any]) -> Any:
    """A browser with a mouse."""
    return launch()


@pytest.fixture
def browse(chromium: Any, pages: dict[str, Path]) -> Iterator[Any]:
    errors: list[str] = []
    opened = []

    def open_page(name: str, size: str = "desktop") -> Any:
        tab = chromium.new_page()
        width, height = WIDTHS[size]
        tab.set_viewport_size({"width": width, "height": height})
        tab.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("request", lambda asked: errors.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
        tab.goto(pages[name].as_uri())
        opened.append(tab)
        return tab

    yield open_page
    for tab in opened:
        tab.close()
    assert not errors


def wait_for_cursor(tab: Any, place: str) -> None:
    """Wait until the cursor is there. The policy of the page prevents tests from evaluating text in it."""
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
    wait_for_cursor(tab, "step 3 of 5 reads now")
    before = tab.locator("#wires").inner_text()
    tab.keyboard.press("ArrowRight")
    wait_for_cursor(tab, "step 4 of 5 reads stop")
    assert tab.locator("#wires").inner_text() != before
    assert tab.locator(".u.on").inner_text().startswith("stop")
    unit = tab.locator("#unit").input_value()
    tab.keyboard.press("ArrowDown")
    last = tab.locator("#unit").input_value() == unit
    for key in ("ArrowUp", "ArrowDown") if last else ("ArrowUp",):
        tab.keyboard.press(key)
    assert tab.locator("#unit").input_value() == unit
    tab.locator(".part.chosen .heat.time .pane").first.click(position={"x": 5, "y": 10})
    wait_for_cursor(tab, "step 1 of 5")
    tab.locator(".heat.matrix .pane").first.click(position={"x": 5, "y": 200})
    tab.wait_for_timeout(200)
    assert not said.inner_text().startswith("step 1 of 5")
    assert "largest contribution" in tab.locator(".heat.matrix output").inner_text()


def test_layers_units_and_shades_are_selected(browse: Any) -> None:
    tab = browse("classification")
    assert tab.locator("#part option").count() == 4
    tab.locator("#part").select_option("3")
    assert tab.locator(".part.chosen").first.get_attribute("data-part") == "layer1.reverse"
    tab.keyboard.press("Escape")
    tab.locator("h1").click()
    tab.keyboard.press("l")
    assert tab.locator("#part").input_value() == "0"
    tab.locator("#shade").select_option("?contributions")
    tab.wait_for_timeout(100)
    assert {"p10", "n10"} & set(
        " ".join(tab.locator(".passage .u").evaluate_all("e => e.map(x => x.className)")).split()
    )
    tab.locator("#unit").fill("3")
    tab.wait_for_timeout(100)
    assert tab.locator(".part.chosen .dot.on").first.get_attribute("data-u") == "3"


def test_the_text_is_shaded_by_relevance_with_its_sum(browse: Any) -> None:
    tab = browse("tagging")
    tab.locator("#shade").select_option("?relevance")
    tab.locator('[data-s="1"]').hover()
    wait_for_cursor(tab, "step 2 of 5")
    said = tab.locator(".passages .legend").inner_text().replace("−", "-")
    words = r"relevance to the log odds of \S+ over \S+: (\S+) = (\S+) from the steps, (\S+) from biases"
    sentence = re.search(words, said)
    assert sentence is not None, said
    score, steps, biases = map(float, sentence.groups())
    assert score == pytest.approx(steps + biases, abs=0.011)
    shades = tab.locator(".passage .u").evaluate_all("e => e.map(x => x.className.match(/[pn][0-9]+/)[0])")
    assert {"p10", "n10"} & set(shades)
    tab.keyboard.press("ArrowRight")
    wait_for_cursor(tab, "step 3 of 5")
    tab.wait_for_timeout(100)
    assert tab.locator(".passages .legend").inner_text() != said


def test_marked_steps_are_searched(browse: Any) -> None:
    """By the keyboard, by selected text, by dragging over a picture, and by the form."""
    tab = browse("language-model")
    said, steps, places = tab.locator("#search output"), tab.locator('[data-id="steps"]'), tab.locator("#search li")
    tab.locator('[data-s="3"]').click()
    tab.mouse.move(0, 0)
    tab.keyboard.press("Shift+ArrowRight")
    assert steps.input_value() == "4-5"
    assert tab.locator(".u.marked").count() == 2
    assert "of layer0.forward, unit" in said.inner_text()
    assert places.count() >= 3
    distances = [float(each) for each in places.locator("b").all_inner_texts()]
    assert distances == sorted(distances)
    tab.keyboard.press("Escape")
    assert tab.locator(".u.marked").count() == places.count() == 0
    boxes = [tab.locator(f'[data-s="{step}"]').bounding_box() for step in (1, 2)]
    tab.mouse.move(boxes[0]["x"] + 1, boxes[0]["y"] + 8)
    tab.mouse.down()
    tab.mouse.move(boxes[1]["x"] + boxes[1]["width"] - 1, boxes[1]["y"] + 8, steps=5)
    tab.mouse.up()
    tab.wait_for_timeout(200)
    assert steps.input_value() == "2-3"
    pane = tab.locator(".part.chosen .heat.time .pane").first
    pane.evaluate("pane => pane.scrollIntoView({ block: 'center', behavior: 'instant' })")
    box = pane.bounding_box()
    tab.mouse.move(box["x"] + 2, box["y"] + 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    tab.mouse.up()
    assert steps.input_value().startswith("1-")
    units = tab.locator('[data-id="units"]')
    assert 2 <= len(units.input_value().split(",")) <= 5
    steps.fill("0-9999")
    tab.get_by_role("button", name="Find").click()
    assert re.match(r"Steps: expected a range from 1 to \d+ such as 2-3, got 0-9999", said.inner_text())
    steps.fill("3")
    units.fill("1, 99")
    tab.get_by_role("button", name="Find").click()
    assert said.inner_text().startswith("Units: expected numbers from 0 to 5")
    units.fill("1")
    tab.get_by_role("button", name="Find").click()
    assert "unit 1:" in said.inner_text()
    assert_accessible(tab)


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
    assert browse("normalised").evaluate(ground) == light


def test_a_plot_is_saved_as_svg(browse: Any, tmp_path: Path) -> None:
    tab = browse("normalised")
    with tab.expect_download() as download:
        tab.locator("#memory .save").first.click(force=True)
    download.value.save_as(tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text("utf-8")
    assert text.startswith("<svg")
    assert 'stroke="rgb(' in text


@pytest.mark.parametrize(
    "name",
    [
        "tagging",
        "classification",
        "language-model",
        "translation",
        "forecasting",
        "series",
        "two layers",
        "normalised",
        "custom cell",
        "pair",
    ],
)
@pytest.mark.parametrize("size", WIDTHS)
def test_pages_are_accessible_and_fit_the_screen(browse: Any, name: str, size: str) -> None:
    tab = browse(name, size)
    assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[size][0]
    assert_accessible(tab)


def assert_accessible(tab: Any) -> None:
    """Axe finds no serious fault."""
    assert AXE.exists(), "these tests need axe-core: make browser"
    tab.evaluate(AXE.read_text("utf-8"))
    violations = tab.evaluate("axe.run()")["violations"]
    serious = [
        (each["id"], [node["html"][:120] for node in each["nodes"]][:4])
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious


def test_the_page_can_be_read_without_its_script(pages: dict[str, Path], chromium: Any) -> None:
    text = pages["classification"].read_text("utf-8").replace("<script>", "<!--", 1)
    tab = chromium.new_page()
    tab.set_content(text.split("<!--")[0])
    assert tab.locator("#bar").is_hidden()
    assert tab.locator(".part").count() == tab.locator(".part:visible").count() > 8
    assert tab.locator("svg:visible").count() > 20
    tab.close()


def test_the_answers_of_a_translation_are_selected(browse: Any) -> None:
    tab = browse("translation")
    answers = tab.locator(".passage [data-a]")
    before = tab.locator("#now").inner_text()
    answers.nth(1).hover()
    tab.wait_for_timeout(200)
    assert tab.locator("#now").inner_text() != before
    assert "on" in (answers.nth(1).get_attribute("class") or "").split()
    tab.keyboard.press("n")
    tab.wait_for_timeout(200)
    assert "on" not in (answers.nth(1).get_attribute("class") or "").split()
    pictures = tab.locator(".heat.matrix")
    assert pictures.count() == 2
    assert "attends most to" in pictures.nth(1).inner_text()


def test_every_wire_has_a_value(browse: Any) -> None:
    for name in ("normalised", "custom cell", "tagging"):
        tab = browse(name)
        tab.locator("#unit").fill("1")  # a unit that the projection keeps
        tab.wait_for_timeout(200)
        values = tab.locator(".diagram .wire text.value").all_text_contents()
        assert len(values) > 4
        assert all(values)


def test_the_plot_and_the_strip_of_a_series_share_the_cursor(browse: Any) -> None:
    tab = browse("series")
    plot = tab.locator("svg[data-time]").first
    box = plot.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_timeout(200)
    marked = tab.locator(".strip .on")
    assert marked.count() == 1
    strip = marked.bounding_box()
    assert abs(strip["x"] + strip["width"] / 2 - box["x"] - box["width"] / 2) < 2 * strip["width"]


def test_touch_moves_the_cursor_on_a_phone(launch: Callable[..., Any], pages: dict[str, Path]) -> None:
    width, height = WIDTHS["phone"]
    tab = launch(has_touch=True, is_mobile=True, viewport={"width": width, "height": height}).new_page()
    tab.goto(pages["tagging"].as_uri())
    tab.locator('[data-s="2"]').tap()
    wait_for_cursor(tab, "step 3 of 5 reads now")
    tab.locator("#next-step").tap()
    wait_for_cursor(tab, "step 4 of 5 reads stop")
    unit = tab.locator("#unit").input_value()
    tab.locator("#next-unit" if unit == "0" else "#previous-unit").tap()
    assert tab.locator("#unit").input_value() != unit
    plot = tab.locator(".part.chosen .heat.time .pane").first
    plot.scroll_into_view_if_needed()
    plot.tap(position={"x": 5, "y": 10})
    wait_for_cursor(tab, "step 1 of 5")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    small = tab.locator("#bar button:visible, #bar select:visible").evaluate_all(
        "all => all.filter(each => each.getBoundingClientRect().height < 24).map(each => each.id)"
    )
    assert not small
    tab.close()


def test_two_runs_share_the_cursor(browse: Any) -> None:
    tab = browse("pair")
    tab.locator('[data-run="1"] .passage [data-s="3"]').hover()
    tab.wait_for_timeout(200)
    shown = [tab.locator(f'[data-run="{run}"] .passage .u.on').first.inner_text() for run in (0, 1)]
    assert shown[0].split()[0] == shown[1].split()[0] == "stop"
    tab.keyboard.press("ArrowLeft")
    tab.wait_for_timeout(200)
    assert tab.locator('[data-run="0"] .passage .u.on').first.inner_text().startswith("now")
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.locator("#bar").bounding_box()["height"] < 160
    tab.locator("#unit-1").fill("500")
    assert tab.locator("#problem-1").bounding_box()["x"] < 390
