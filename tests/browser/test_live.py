"""Interactive pages in Chromium give the answers of Python. No page makes requests or has errors.

`make browser` runs these tests and copies the animated picture to docs/.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import glassgate as gg
from glassgate.cli.demo import _CODE, _write_live_page
from glassgate.glass.page import page
from glassgate.glass.places import Places
from glassgate.tasks.live.page import live
from glassgate.tasks.report.study import Excerpt, study
from glassgate.tasks.task import Task
from tests.browser.test_page import AXE, WIDTHS, chromium, launch  # noqa: F401
from tests.browser.test_pictures import PICTURES, demo_run
from tests.tasks.live.runs import RUNS, excerpts, random_edits, random_inputs, trained
from tests.tasks.live.test_page import READING, agrees, page_input

pytestmark = pytest.mark.browser

_READ = f"([given, edits]) => {{ {READING} return reading(glassgate.read(given, edits)); }}"


_TYPE = """(line) => Array.from({ length: 40 }, (_, k) => {
  const area = document.querySelector("#live textarea");
  area.value = line + (k % 10);
  const start = performance.now();
  area.dispatchEvent(new Event("input"));
  return performance.now() - start;
})"""
"""The milliseconds from a changed line to its colours and answers on the page, 40 times."""


class LiveRuns(dict[str, tuple[Task[Any, Any, Any], Excerpt, Path]]):
    """A small run of each task, its input and its page. A run is trained when a test first needs it."""

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> tuple[Task[Any, Any, Any], Excerpt, Path]:
        torch.manual_seed(1)
        with gg.engine("reference"):
            task = trained(name)
            shown = excerpts(task)
            path = self.folder / f"{name}.html"
            path.write_text(page(study(task, shown, name), live=live(task, shown, Path("runs/small"))), "utf-8")
        self[name] = task, shown[0], path
        return self[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> LiveRuns:
    return LiveRuns(tmp_path_factory.mktemp("live"))


@pytest.fixture
def browse(chromium: Any) -> Iterator[Any]:  # noqa: F811
    errors: list[str] = []
    opened = []

    def open_page(path: Path, size: str = "desktop", scheme: str = "light", fragment: str = "") -> Any:
        tab = chromium.new_page()
        width, height = WIDTHS[size]
        tab.set_viewport_size({"width": width, "height": height})
        tab.emulate_media(color_scheme=scheme)
        tab.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("request", lambda asked: errors.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
        tab.goto(path.resolve().as_uri() + fragment)
        opened.append(tab)
        return tab

    yield open_page
    for tab in opened:
        tab.close()
    assert not errors


@pytest.mark.parametrize("name", RUNS)
def test_the_page_gives_the_answers_of_python(browse: Any, runs: dict[str, Any], name: str) -> None:
    """On random texts or series and with random edits."""
    task, excerpt, path = runs[name]
    tab = browse(path)
    random = np.random.default_rng(3)
    inputs = [(page_input(task, excerpt, path), excerpt), *random_inputs(task, excerpt, random, 3)]
    with gg.engine("reference"):
        for given, shown in inputs:
            for edits, changes in [({}, []), *(random_edits(task, random) for _ in range(2))]:
                agrees(task, shown, edits, tab.evaluate(_READ, [given, changes]), given)


@pytest.mark.parametrize("name", ["tagging", "translation", "forecasting"])
@pytest.mark.parametrize("size", WIDTHS)
def test_pages_are_accessible_and_fit_the_screen(browse: Any, runs: dict[str, Any], name: str, size: str) -> None:
    for scheme in ("light", "dark"):
        tab = browse(runs[name][2], size, scheme)
        tab.get_by_role("button", name="Add a change").click()
        tab.locator("summary", has_text="Python code").click()
        assert_accessible(tab, size)


def test_states_of_the_typed_text_are_searched_in_the_data(browse: Any, tmp_path: Path) -> None:
    with gg.engine("reference"):
        task = trained("tagging")
        made = study(task, excerpts(task), "tagging")
        values = {each.label: each.values["h"].T for each in made.directions}
        measures = ({label: each(v, 1) for label, v in values.items()} for each in (np.mean, np.std))
        made.places = Places(values, *measures, [list(made.passages[0].steps)], [0], "dev", len(made.passages[0].steps))
        path = tmp_path / "page.html"
        path.write_text(page(made, live=live(task, excerpts(task), tmp_path)), "utf-8")
    tab = browse(path)
    tab.locator("#live-search summary").click()
    tab.locator("#live-back").click()
    tab.get_by_role("button", name="Find").first.click()
    steps = made.passages[0].steps
    # The page begins with the same text, so that the closest place is the step itself.
    step = int(re.match(r"step (\d+)", tab.locator("#live-found").inner_text())[1])
    nearest = tab.locator("#live-places li").first
    assert float(nearest.locator("b").inner_text()) < 0.2
    assert nearest.locator("mark").inner_text() == steps[step - 1]


@pytest.mark.parametrize("size", WIDTHS)
def test_the_page_of_a_cell(browse: Any, tmp_path: Path, size: str) -> None:
    gg.draw(gg.cells.GRU()).live(units=2, beside=[gg.cells.LSTM()]).save(tmp_path / "cell.html")
    tab = browse(tmp_path / "cell.html", size)
    assert tab.locator(".plot.signal").count() == 1
    assert tab.locator(".lane.state, .lane.gate").count() == 4 + 6
    assert tab.locator(".step-axis").count() == 1 + 2
    before = tab.locator(".lane output").all_inner_texts()
    tab.locator(".plot.signal").focus()
    tab.keyboard.press("ArrowUp")
    assert tab.locator(".lane output").all_inner_texts() != before
    assert_accessible(tab, size)


def assert_accessible(tab: Any, size: str) -> None:
    """Axe finds no serious fault, and the page is not wider than the screen."""
    assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[size][0]
    assert AXE.exists(), "these tests need axe-core: make browser"
    tab.evaluate(AXE.read_text("utf-8"))
    violations = tab.evaluate("axe.run()")["violations"]
    serious = [
        (each["id"], [node["html"][:160] for node in each["nodes"]][:3])
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious


def test_typing_colours_the_text_and_edits_are_described(browse: Any, runs: dict[str, Any]) -> None:
    tab = browse(runs["tagging"][2])
    tab.locator("textarea").fill("stop it now žužu")
    assert "žužu" in tab.locator("#live-unknown").inner_text()
    assert tab.locator(".live-paint span").count() == 4
    tab.get_by_role("button", name="Add a change").click()
    tab.locator(".live-edit input[type=number]").fill("1")
    said = tab.locator("#live-change").inner_text()
    assert "held at 1" in said
    assert "answers change" in said
    tab.locator("summary", has_text="Python code").click()
    assert "gg.hold(1, units=[0])" in tab.locator("#live-python").inner_text()
    tab.get_by_role("button", name="Undo all").click()
    assert tab.locator("#live-change").inner_text() == ""


def test_fields_with_wrong_values_get_a_message(browse: Any, tmp_path: Path) -> None:
    """No wrong value changes an answer or raises an error, and a text of several lines can be taken."""
    with gg.engine("reference"):
        task = trained("tagging")
        shown = excerpts(task)
        (tmp_path / "page.html").write_text(page(study(task, shown, "x"), live=live(task, shown, tmp_path)), "utf-8")
    tab = browse(tmp_path / "page.html")
    tab.get_by_role("button", name="Add a change").click()
    row, said = tab.locator(".live-edit"), tab.locator("#live-change")
    units, steps = (row.locator("input:not([type])").nth(k) for k in (0, 1))
    for field, wrong in ((units, ("500", "abc", "-1")), (steps, ("0", "999", "x"))):
        for value in wrong:
            field.fill(value)
            assert re.search(f"expected .* got {value}", " ".join(row.locator("output").all_inner_texts()))
            assert said.inner_text() == ""
        field.fill("all")
        assert "held at 0" in said.inner_text()
    row.locator("select").nth(1).select_option("replace")
    assert "The other text: expected at least one token" in row.inner_text()
    assert said.inner_text() == ""
    row.locator("textarea").fill("stop\nit <b>now</b>")
    assert "taken from the other text" in said.inner_text()
    tab.locator("summary", has_text="Python code").click()
    assert "stop\\nit <b>now</b>" in tab.locator("#live-python").inner_text()
    for field, message in (
        (tab.locator("#live-choice input"), "#live-choice output"),
        (tab.locator("#unit"), "#problem"),
    ):
        for value in ("500", "-1", "1.5"):
            field.fill(value)
            assert tab.locator(message).inner_text() == f"Unit: expected a number from 0 to 5, got {value}."
        field.fill("1")
        assert tab.locator(message).inner_text() == ""
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.locator("#bar").bounding_box()["height"] < 160


def test_a_link_restores_the_state_of_a_page(browse: Any, runs: dict[str, Any]) -> None:
    """The text, the changes, the selected values and the cursors of a text; the dragged values of a series."""
    path = runs["tagging"][2]
    tab = browse(path)
    tab.locator("#live-input textarea").fill("stop the 北京 jazz")
    tab.get_by_role("button", name="Add a change").click()
    row = tab.locator(".live-edit")
    row.locator("select").nth(1).select_option("replace")
    row.locator("textarea").fill("play it\nnow")
    tab.locator("#live-choice input").fill("4")
    tab.locator("#unit").fill("3")
    tab.locator('.passage [data-s="2"]').hover()
    tab.wait_for_timeout(100)
    restored = browse(path, fragment=link_of(tab))
    for place in ("#live-change", "#live-where", "#live-python", "#now", "#wires"):
        assert restored.locator(place).text_content() == tab.locator(place).text_content() != ""
    assert restored.locator("#live-input textarea").input_value() == "stop the 北京 jazz"
    assert restored.locator("#unit").input_value() == "3"
    assert link_of(restored) == link_of(tab)
    # A damaged link and one of another page get a message, also in a page that is open.
    for fragment in ("#state=abc", link_of(browse(runs["translation"][2]))):
        restored.evaluate("fragment => { location.hash = fragment; }", fragment)
        restored.wait_for_function(
            "() => document.querySelector('#linked').textContent.startsWith('The link does not')"
        )
    series = browse(runs["forecasting"][2])
    series.locator(".live-series").focus()
    series.keyboard.press("ArrowUp")
    moved = browse(runs["forecasting"][2], fragment=link_of(series))
    shown = series.locator("#live-answers").inner_text()
    assert moved.locator("#live-answers").inner_text() == shown
    assert browse(runs["forecasting"][2]).locator("#live-answers").inner_text() != shown


def link_of(tab: Any) -> str:
    """The fragment of the link that a reader copies."""
    tab.locator("#link").click()
    until(tab, "location.hash.startsWith('#state=')")
    return str(tab.evaluate("location.hash"))


def until(tab: Any, condition: str) -> None:
    """Wait for a condition. The policy of the page prevents `wait_for_function`."""
    for _ in range(100):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(20)
    raise AssertionError(condition)


def test_the_cursor_moves_by_keyboard(browse: Any, runs: dict[str, Any]) -> None:
    tab = browse(runs["language-model"][2])
    tab.locator("#live-heat").focus()
    before = tab.locator("#live-where").inner_text()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#live-where").inner_text() != before
    assert len(tab.locator("#live-diagram .wire text.value").all_text_contents()) > 4


def test_without_its_script_the_interactive_part_is_hidden(runs: dict[str, Any], chromium: Any) -> None:  # noqa: F811
    text = runs["tagging"][2].read_text("utf-8").replace("<script", "<!--", 1)
    tab = chromium.new_page()
    tab.set_content(text.split("<!--")[0])
    assert tab.locator("#live").is_hidden()
    assert tab.locator("#findings").is_visible()
    tab.close()


@pytest.fixture(scope="module")
def demo_page() -> Path:
    return _write_live_page(demo_run() / "bidirectional", PICTURES.parent / "live.html")


def test_the_demo_answers_within_50_ms(browse: Any, demo_page: Path) -> None:
    """The demo's page: its size, and its speed on a changed line of 200 characters. Other processes slow it down."""
    assert demo_page.stat().st_size <= 3_000_000
    line = ("x = area(radius) + table[12]  # a line of code; " * 5)[:199]
    assert min(browse(demo_page).evaluate(_TYPE, line)) < 50


def test_the_animation_is_saved(browse: Any, demo_page: Path) -> None:
    """The picture of the README; `make browser` copies it to docs/."""
    frames = list(recorded(browse(demo_page)))
    target = PICTURES / "live.gif"
    PICTURES.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        target,
        save_all=True,
        append_images=frames[1:],
        duration=[190] * (len(frames) - 1) + [2500],
        loop=0,
        optimize=True,
    )
    assert target.stat().st_size < 1_000_000


def recorded(tab: Any) -> Iterator[Image.Image]:
    """Frames of a reader who types code, closes the forget gate and opens it again."""
    tab.set_viewport_size({"width": 1000, "height": 720})
    tab.evaluate("document.getElementById('bar').style.display = 'none'")
    area = tab.locator("textarea")
    area.fill("")

    def frame() -> Image.Image:
        tab.evaluate("document.getElementById('live').scrollIntoView()")
        shot = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        return shot.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)

    for end in range(6, len(_CODE) + 6, 6):
        area.fill(_CODE[:end])
        yield frame()
    tab.get_by_role("button", name="Add a change").click()
    tab.locator(".live-edit input").first.fill("all")
    slider = tab.locator(".live-edit input[type=range]")
    for value in ("0.8", "0.5", "0.2", "0", "0", "0.5", "1"):
        slider.fill(value)
        yield frame()
