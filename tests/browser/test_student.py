"""The report that the code of the student page writes, in Chromium; `make browser` copies its picture to docs/."""

from pathlib import Path
from typing import Any

import pytest

from docs.draw_student import run_page
from tests.browser.test_page import chromium, launch  # noqa: F401
from tests.browser.test_pictures import PICTURES, picture, save_picture

pytestmark = pytest.mark.browser


def test_the_picture_of_the_recording_is_saved(chromium: Any, tmp_path: Path) -> None:  # noqa: F811
    PICTURES.mkdir(parents=True, exist_ok=True)
    run_page(tmp_path)
    tab = chromium.new_page()
    tab.set_viewport_size({"width": 1100, "height": 900})
    tab.goto((tmp_path / "recording.html").as_uri())
    tab.locator(".passage [data-s]").nth(7).hover()
    tab.wait_for_timeout(300)
    tab.mouse.move(0, 0)
    assert "step 7" in tab.locator("#bar").inner_text()
    bar = picture(tab, "#bar")
    tab.evaluate("document.getElementById('bar').style.display = 'none'")
    save_picture("recording.png", *(picture(tab, place) for place in ("header", "#findings", "#text")), bar)
    tab.close()
