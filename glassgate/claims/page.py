"""Writes an HTML page as one file with embedded SVG, without scripts and without requests."""

import base64
import hashlib
import platform
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from glassgate.claims.pictures import Picture
from glassgate.system import SYSTEM
from glassgate.tasks.runs import write, write_json

_CSS = """
:root { color-scheme: light dark; --ink: #1d2530; --paper: #fdfdfb; --faint: #667085; --line: #d9dde3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14181d; --faint: #98a2b3; --line: #333b45; } }
body { margin: 2.5rem auto; max-width: 54rem; padding: 0 1.2rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .4rem; }
p, figcaption, caption { max-width: 42rem; }
figure { margin: .6rem 0 0; }
figure svg { max-width: 100%; height: auto; color: var(--ink); }
figcaption, .faint, caption { color: var(--faint); font-size: .86rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; margin-top: .6rem; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { padding: .22rem .8rem .22rem 0; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .86rem;
  border-left: 3px solid var(--line); padding-left: .8rem; }
ul.findings li { margin: .25rem 0; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""


def figure(picture: Picture, caption: str) -> str:
    """The HTML of a picture with its caption."""
    return f'<figure id="{picture.name}">{picture.svg}<figcaption>{escape(caption)}</figcaption></figure>'


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The HTML of a table of texts. All columns except the first are right-aligned."""
    header = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def page(title: str, lead: str, findings: Sequence[str], sections: Sequence[tuple[str, str]]) -> str:
    """The HTML of the complete page.

    Args:
        title, lead: the heading and the sentence below it.
        findings: sentences, the most important first.
        sections: headings, each with its content as HTML.
    """
    digest = base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode()
    # matplotlib sets colours with style attributes.
    policy = f"default-src 'none'; style-src-elem 'sha256-{digest}'; style-src-attr 'unsafe-inline'"
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in findings)
    body = "".join(f"<section><h2>{escape(heading)}</h2>{html}</section>" for heading, html in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p>{escape(lead)}</p><ul class="findings">{items}</ul>{body}</main></body></html>\n'
    )


def machine() -> dict[str, str | int]:
    """Return the processor, the number of threads, and the versions of torch and Python."""
    return {
        "processor": SYSTEM.processor_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def save(folder: Path, name: str, html: str, content: Any, pictures: Sequence[Picture]) -> list[Path]:
    """Write `name.html`, the content as `name.json`, and each picture as SVG. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [
        folder / f"{name}.html",
        folder / f"{name}.json",
        *(folder / f"{picture.name}.svg" for picture in pictures),
    ]
    write(files[0], html.encode())
    write_json(files[1], content)
    for file, picture in zip(files[2:], pictures, strict=True):
        write(file, picture.standalone.encode())
    return files
