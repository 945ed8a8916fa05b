"""Draws the pictures of docs/report.md: `python docs/report_pictures.py RUN docs`; needs what make browser installs."""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from glassgate.cli import main as glassgate

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
WIDTH, EDGE = 1120, 16
CODE = '''\
@cache
def area(radius: float) -> float:
    """The area of a circle, in square metres."""
    # Three digits are enough for a garden.
    return 3.14 * radius**2

for name, size in {"pond": 2.5, "lawn": 11}.items():
    print(f"{name}: {area(size)}")
'''


def main(run: str, folder: str) -> None:
    """Writes report.png, report-gates.png and report-dark.png."""
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        report = Path(work, "report.html")
        glassgate(["report", run, CODE, "-o", str(report)])
        program = shutil.which("chromium")
        context = playwright.chromium.launch_persistent_context(
            work + "/browser", executable_path=program, headless=True, args=FLAGS, color_scheme="light"
        )
        page = context.new_page()
        page.set_viewport_size({"width": WIDTH, "height": 900})
        page.goto(report.as_uri())
        steps = page.locator(".passage [data-s]")
        steps.nth(steps.count() // 2).hover()
        page.wait_for_timeout(300)
        page.evaluate("scrollTo(0, 0)")
        stacked(
            page,
            ("header", "#text", "#saturation", "figure[data-name=f]", "figure[data-name=c]", "#bar"),
            Path(folder, "report.png"),
        )
        picture(page, "gates", Path(folder, "report-gates.png"))
        page.keyboard.press("t")
        picture(page, "flow", Path(folder, "report-dark.png"))
        context.close()


def picture(page: Page, section: str, path: Path) -> None:
    """One section of the page, without the bar at its foot."""
    page.evaluate("document.getElementById('bar').style.display = 'none'")
    content = page.locator(f"#{section}").screenshot()
    page.evaluate("document.getElementById('bar').style.display = ''")
    write(Image.open(io.BytesIO(content)), path)


def stacked(page: Page, places: tuple[str, ...], path: Path) -> None:
    """Some parts of the page, one below the other."""
    page.mouse.move(0, 0)
    parts = []
    for place in places:
        page.evaluate("show => document.getElementById('bar').style.display = show ? '' : 'none'", place == "#bar")
        found = page.locator(f"{place} >> visible=true").first.screenshot()
        parts.append(Image.open(io.BytesIO(found)).convert("RGB"))
    heights = [
        part.height + (EDGE if place.startswith("figure") else 0) for part, place in zip(parts, places, strict=True)
    ]
    whole = Image.new("RGB", (WIDTH, sum(heights)), parts[0].getpixel((2, 2)))
    top = 0
    for part, height in zip(parts, heights, strict=True):
        whole.paste(part, ((WIDTH - part.width) // 2, top))
        top += height
    write(whole, path)


def write(image: Image.Image, path: Path) -> None:
    """In 256 colours, which is enough for a page, in a third of the bytes."""
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
