"""The documentation site in a real Chromium: it loads nothing from other hosts, and its search finds names."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.test_translations import QUESTIONS

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
PAGES = ("index", "student", "student.zh-CN", "training", "own-cells", "glossary.zh-CN", "classroom", "notebooks/gates")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


class Quiet(SimpleHTTPRequestHandler):
    """A request handler without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a freshly built site. Each test process builds its own, because builds delete the old files."""
    pytest.importorskip("mkdocs", reason="make docs installs it")
    folder = str(tmp_path_factory.mktemp("site"))
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
    subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_load_without_errors_from_one_host(site: str, scheme: str, tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path, executable_path=shutil.which("chromium"), headless=True, args=FLAGS, color_scheme=scheme
        )
        page = browser.new_page()
        requested: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        for address in (*PAGES, "cells", "results", "reference/layers", "reference/commands", "zh-CN"):
            page.goto(f"{site}/{address}.html", wait_until="networkidle")
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 800})
                page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
        page.set_viewport_size({"width": 1280, "height": 800})
        page.keyboard.press("/")
        page.keyboard.type("zoneout")
        page.wait_for_selector(".md-search-result__item")
        page.goto(f"{site}/zh-CN.html", wait_until="load")
        for words, (name, _) in QUESTIONS.items():
            for text in ("", words):  # the first one removes the results of the previous question
                page.fill(".md-search__input", text)
                page.press(".md-search__input", "End")  # the site searches when a key is released
                results = ".md-search-result__item a"
                page.wait_for_selector(
                    f"{results}[href*='{name}.zh-CN.html']" if text else results,
                    state="attached" if text else "detached",
                    timeout=120_000,
                )
        for name in ("student", "student.zh-CN"):  # the picture of the LSTM and its equations are on one screen
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 800})
                page.goto(f"{site}/{name}.html", wait_until="networkidle")
                picture, text = page.locator(".gg-beside img"), page.locator(".gg-beside pre")
                tops = [each.bounding_box()["y"] for each in (picture, text)]
                assert abs(tops[0] - tops[1]) < 800
                assert picture.bounding_box()["width"] <= width
                assert not page.locator("iframe").count()
        assert not errors
        assert {url for url in requested if not url.startswith((site, "data:", "blob:"))} == set()
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(site: str, scheme: str, tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    axe = ROOT / "build/browser/node_modules/axe-core/axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core is not installed: run `make browser`")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path, executable_path=shutil.which("chromium"), headless=True, args=FLAGS, color_scheme=scheme
        )
        page = browser.new_page()
        faults = []
        for address in (*PAGES, "defaults"):
            page.goto(f"{site}/{address}.html", wait_until="networkidle")
            page.add_script_tag(path=axe)
            for each in page.evaluate("axe.run(document)")["violations"]:
                if each["impact"] in ("serious", "critical"):
                    faults.append((address, each["id"], each["nodes"][0]["html"][:120]))
        browser.close()
        assert not faults
