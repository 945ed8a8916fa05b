"""Hooks of MkDocs: the navigation, pages from outside of docs/, links, and the reference of names and commands."""

import contextlib
import inspect
import io
import itertools
import json
import logging
import os
import posixpath
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jieba
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import glassgate as gg
from glassgate.cli import COMMANDS, main
from glassgate.tasks import TASKS, task_class

jieba.setLogLevel(logging.WARNING)  # the progress of its dictionary would look like warnings of MkDocs
ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
sys.path[:0] = str(SITE), str(SITE.parent)
from checked import find_faults  # noqa: E402
from chinese import CHINESE, joined, pictures_of, translate_picture, with_chinese_pictures  # noqa: E402
from gallery import FIGURES, body  # noqa: E402
from index import INDEX, read_sections  # noqa: E402
from notebooks import page_of as page_of_notebook  # noqa: E402
from notebooks import pages as notebooks  # noqa: E402

ELSEWHERE = {
    "zh-CN.md": "README.zh-CN.md",
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Files outside of docs/ that are pages of the site, by the address of the page."""

HOMES = {"docs/README.md": "index.md", "README.md": "index.md", **{file: page for page, file in ELSEWHERE.items()}}
"""The address of the page by the path of its file. Pages of other files keep their path below docs/."""

REFERENCE = {
    "layers": ("Layers", ["LSTM", "GRU", "RNN", "Recurrent", "LSTMCell", "GRUCell", "RNNCell", "RecurrentCell"]),
    "cells": ("Cells", ["Cell", "Parameter", "Gate", "State", "check", "cells", "cell_to_json", "cell_from_json"]),
    "blocks": ("Blocks of models", ["blocks"]),
    "glass": ("Looking inside", ["record", "draw", "edit", "hold", "scale", "replace", "patch", "ablate"]),
    "dynamics": ("Dynamics", ["dynamics", "constrain", "constraints"]),
    "engines": (
        "Engines",
        ["engine", "explain", "source", "convert", "restore", "EngineError", "ShapeError"],
    ),
    "sessions": ("Inference sessions", ["freeze", "load_session"]),
    "export": ("Export", ["to_onnx", "from_onnx", "to_c", "from_nam", "to_nam", "from_rtneural", "to_rtneural"]),
    "functional": ("Functions", ["functional"]),
    "init": ("Initial values", ["init"]),
    "gates": ("Gate by gate", ["gates"]),
}
"""The pages of the reference, with title and public names."""

RESULT_CLASSES = {
    "record": ["glassgate.glass.record.Tape"],
    "explain": ["glassgate.engines.choose.Choice"],
    "freeze": ["glassgate.sessions.session.Session"],
}
"""The classes of the results of functions, by function. The reference shows them below the function."""

MEMBERS = {"Cell": "[step, project]", "Recurrent": "[forward, stream]", "RecurrentCell": "[forward]", "cells": "false"}
"""The members that the reference shows below a name, if not all."""

MOVED = {
    "bfloat16": "engines.html#lower-precision",
    "c": "deployment.html#c",
    "from-paper-to-model": "own-cells.html#from-a-paper-to-a-model",
    "gpu-compiled": "benchmarks.html#kernels-compiled-without-a-gpu",
    "many-machines": "training.html#several-processes",
    "profiling": "benchmarks.html#where-the-time-goes",
    "student-deep": "student.html#deep-lstms",
    "student-functional": "student.html#an-lstm-as-a-function",
    "student-projected": "student.html#projection",
    "tracing": "own-cells.html#when-a-step-is-traced-again",
    "versions": "engines.html#supported-versions",
}
"""The new addresses of pages that were merged into others. The site has a page with the link at each old address."""

_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> None:
    """Derive the navigation from docs/README.md. The generated reference comes first in its section."""
    config.nav = [{"Home": "index.md"}]
    for heading, pages in read_sections(INDEX.read_text("utf-8")).items():
        entries = [{title: page_of(file)} for title, file in pages.items()]
        if heading == "Reference":
            generated = [{title: f"reference/{key}.md"} for key, (title, _) in REFERENCE.items()]
            generated.append({"A gallery of cells": "reference/gallery.md"})
            last = {"Command line": "reference/commands.md"}
            entries = [{"Names": "reference/index.md"}, *generated, last, *entries]
        config.nav.append({heading: entries})


def page_of(file: str) -> str:
    """Return the page of the site for a file in the index docs/README.md."""
    path = posixpath.normpath(posixpath.join("docs", file))
    return HOMES.get(path) or page_of_notebook(path.removeprefix("docs/"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and those from outside of docs/."""
    pages = {"index.md": home(), **reference()}
    for page, (text, pictures) in notebooks().items():
        _GENERATED.update(f"docs/{name}" for name in pictures)
        pages |= {page: with_site_links(text, f"docs/{page}", page)}
        pages |= pictures
    pages |= {page: with_site_links((ROOT / file).read_text("utf-8"), file, page) for page, file in ELSEWHERE.items()}
    for file in (ROOT / "docs").glob(f"*{CHINESE}.md"):
        for path in pictures_of(file.read_text("utf-8")):
            picture = f"{path.removesuffix('.svg')}{CHINESE}.svg"
            _GENERATED.add(f"docs/{picture}")
            pages[picture] = translate_picture((ROOT / "docs" / path).read_text("utf-8"), path)
    for address, text in pages.items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links in a page of docs/ by links to pages of the site, and pictures of Chinese pages by Chinese ones."""
    address = page.file.src_uri
    if not page.file.generated_by:
        markdown = with_chinese_pictures(markdown) if CHINESE in address else markdown
        markdown = with_site_links(markdown, f"docs/{address}", address)
    return joined(markdown) if "zh-CN" in address else markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark the pictures whose colours follow those of the page. In dark mode the others are shown on paper."""

    def mark(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), unquote(match[1])))
        file = files.get_file_from_path(path)
        adapts = file is not None and "prefers-color-scheme" in file.content_string
        return match[0].replace("<img ", '<img class="gg-adapts" ', 1) if adapts else match[0]

    return re.sub(r'<img [^>]*src="([^":]+\.svg)"', mark, html)


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: object) -> None:
    """Select the language of the words around a page."""
    config.theme["language"] = "zh" if "zh-CN" in page.file.src_uri else "en"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, for screen readers, and declare the language of Chinese pages."""
    label = {"en": "Search", "zh": "搜索"}[config.theme["language"]]
    output = output.replace('<html lang="zh"', '<html lang="zh-CN"', 1)
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="{label}"')


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the files of the project to which pages link, and check the site."""
    site = Path(config.site_dir).resolve()
    for name in sorted(_COPIED):
        target = site / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target.with_name(target.name + _ADDED_SUFFIXES.get(target.suffix, "")))
    for name, address in MOVED.items():
        (site / f"{name}.html").write_text(_MOVED.format(address), "utf-8")
    (site / ".nojekyll").touch()  # GitHub Pages shows the folder as it is
    if faults := find_faults(site):
        raise PluginError("\n".join(faults))


_SEARCH = 'data-md-component="search" role="dialog"'
_MOVED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={0}"></head><body><a href="{0}">This page has moved</a></body></html>
"""

_GENERATED: set[str] = set()
"""The paths of pictures that the site generates."""
_COPIED: set[str] = set()
"""The files of the project to which pages link."""
_ADDED_SUFFIXES = {".py": ".txt", ".cff": ".txt", "": ".txt"}
"""Suffixes that are added to copied files, because browsers show files with this suffix and would download others."""


def with_site_links(markdown: str, file: str, address: str) -> str:
    """Replace the links of a file by links to pages of the site, or to copies of files.

    Args:
        markdown: the text of the file.
        file: the path of the file in the project.
        address: the address of its page.
    """

    def replace_link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(file), match[2]))
        if target in _GENERATED:
            return match[0]
        if not (ROOT / target).exists():
            raise PluginError(f"{file} links to {match[2]}, which does not exist")
        page = HOMES.get(target) or page_of_notebook(target.removeprefix("docs/"))
        if page == target:  # neither a page nor below docs/
            _COPIED.add(target)
            copy = f"files/{target}" + _ADDED_SUFFIXES.get(posixpath.splitext(target)[1], "")
            depth = address.count("/")
            return f'{match[1]}{"../" * depth}{copy}{match[4]}{{data-file=""}}'
        return match[1] + posixpath.relpath(page, posixpath.dirname(address) or ".") + (match[3] or "") + match[4]

    return _LINK.sub(replace_link, markdown)


def home() -> str:
    """Return the home page: the template home.md with the text of the README."""
    readme = with_site_links((ROOT / "README.md").read_text("utf-8"), "README.md", "index.md")
    title, sentence, chinese, rest = readme.split("\n\n", 3)
    page = (SITE / "home.md").read_text("utf-8")
    values = {"TITLE": title.removeprefix("# "), "SENTENCE": sentence, "CHINESE": chinese}
    for name, value in values.items():
        page = page.replace(f"{{{name}}}", value.strip())
    return page.replace("{REST}", re.sub(r"^!\[.*\n\n", "", rest, count=1, flags=re.MULTILINE))


def reference() -> dict[str, str]:
    """Return the pages of the reference by address."""
    named = [name for _, names in REFERENCE.values() for name in names]
    if sorted(named) != sorted(gg.__all__):
        raise PluginError(f"the reference and gg.__all__ differ by {set(named) ^ set(gg.__all__)}")
    pages = {f"reference/{key}.md": _page(title, names) for key, (title, names) in REFERENCE.items()}
    rows = "\n".join(
        f"| [`gg.{name}`]({key}.md{_anchor(name)}) | {_summary(getattr(gg, name))} |"
        for key, (_, names) in REFERENCE.items()
        for name in names
    )
    pages["reference/index.md"] = (
        f"# Reference\n\n`import glassgate as gg` provides these names. Each is loaded at its first use.\n\n"
        f"| name | description |\n|---|---|\n{rows}\n\nFrom a shell: [the command line](commands.md).\n"
    )
    figures = json.loads(FIGURES.read_text("utf-8"))
    pages["reference/gallery.md"] = f"# A gallery of cells\n\n<div>\n{body(figures)}\n</div>\n"
    pages["reference/commands.md"] = _commands()
    return pages


def _path(name: str) -> str:
    return f"{gg._MODULES[name]}.{name}"


def _anchor(name: str) -> str:
    return "" if gg._MODULES[name] == "glassgate" else f"#{_path(name)}"


def _summary(value: Any) -> str:
    return (value.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|").strip()


def _page(title: str, names: list[str]) -> str:
    parts = []
    for name in names:
        is_module = gg._MODULES[name] == "glassgate"
        if name == "cells":
            others = gg.cells.CLASSIC, gg.cells.STATE_SPACES, gg.cells.MATRIX_MEMORIES
            names_of_cells = [*gg.cells.__all__, *itertools.chain(*others)]
            parts += ["## The built-in cells\n", *(_cell(cell) for cell in names_of_cells)]
        elif is_module:
            parts += [f"::: {_path(name)}\n    options: {{show_root_heading: false, show_root_toc_entry: false}}\n"]
        else:
            options = f"    options: {{members: {MEMBERS[name]}}}\n" if name in MEMBERS else ""
            parts += [f"::: {path}\n{options}" for path in (_path(name), *RESULT_CLASSES.get(name, ()))]
    return f"# {title}\n\n" + "\n".join(parts)


def _cell(name: str) -> str:
    """Return the reference of a cell, with the source of its step."""
    source = inspect.getsource(getattr(gg.cells, name).step)
    options = "    options: {heading_level: 3, members: false}\n"
    return f"::: glassgate.cells.{name}\n{options}\n```python\n{textwrap.dedent(source)}```\n"


def _commands() -> str:
    """Return the output of `--help` for every command and task."""
    parts = ["# Command line\n\n`glassgate COMMAND`, or `python -m glassgate COMMAND`.\n"]
    os.environ["COLUMNS"] = "92"
    rows = [([name], summary) for name, summary in COMMANDS.items()]
    after_train = [*COMMANDS].index("train") + 1
    rows[after_train:after_train] = [(["train", name], task_class(name).purpose) for name in TASKS]
    for words, summary in rows:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([*words, "--help"])
        heading = "#" * (len(words) + 1)
        text = summary[0].upper() + summary[1:]
        parts += [f"{heading} glassgate {' '.join(words)}\n\n{text}.\n\n```text\n{output.getvalue().rstrip()}\n```\n"]
    return "\n".join(parts)
