"""The pictures of the pages, drawn by Chromium from the runs of the demo."""

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from glassgate.cli import main
from tests.browser.test_page import chromium, launch  # noqa: F401

pytestmark = pytest.mark.browser

PICTURES = Path("build/browser/pictures")


def demo_run() -> Path:
    """The folder of the demo's runs, trained once. A demo that was interrupted has no scores, and is trained again."""
    run = Path("build/browser/demo")
    if not (run / "demo.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        assert main(["demo", "--run", str(run)]) == 0
    return run


def test_pictures_of_the_pages_are_saved(chromium: Any) -> None:  # noqa: F811
    """The report of the demo's two runs, for README and docs/report.md; `make browser` copies the pictures there."""
    run = demo_run()
    PICTURES.mkdir(parents=True, exist_ok=True)
    report = PICTURES.parent / "report.html"
    both = [str(run / name) for name in ("bidirectional", "one-directional")]
    assert main(["report", *both, "-o", str(report)]) == 0
    tab = chromium.new_page()
    tab.set_viewport_size({"width": 1400, "height": 900})
    tab.goto(report.resolve().as_uri())
    steps = tab.locator('[data-run="0"] .passage [data-s]')
    steps.nth(steps.count() // 2).hover()
    tab.wait_for_timeout(300)
    tab.mouse.move(0, 0)
    bar = picture(tab, "#bar")
    tab.evaluate("document.getElementById('bar').style.display = 'none'")
    places = ("header", "#scores", "#findings", "#text")
    save_picture("report.png", *(picture(tab, place) for place in places), bar)
    save_picture("report-gates.png", picture(tab, "#gates"))
    tab.keyboard.press("t")
    save_picture("report-dark.png", picture(tab, "#flow"))
    tab.close()
    assert report.stat().st_size < 5_000_000


def picture(tab: Any, place: str) -> Image.Image:
    """The first visible element of a place."""
    return Image.open(io.BytesIO(tab.locator(f"{place} >> visible=true").first.screenshot())).convert("RGB")


def save_picture(name: str, *parts: Image.Image) -> None:
    """Write pictures, one below the other, in 256 colours, which takes a third of the bytes."""
    edge = 16
    width = max(part.width for part in parts) + (2 * edge if len(parts) == 1 else 0)
    whole = Image.new("RGB", (width, sum(part.height + edge for part in parts)), parts[0].getpixel((2, 2)))
    top = 0
    for part in parts:
        whole.paste(part, ((width - part.width) // 2, top))
        top += part.height + edge
    whole.quantize(256, dither=Image.Dither.NONE).save(PICTURES / name, optimize=True)
