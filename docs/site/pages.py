"""Hooks of MkDocs: navigation, pages outside of docs/, links between them, the reference of names and commands."""

import contextlib
import inspect
import io
import os
import posixpath
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import glassgate as gg
from glassgate.cli import COMMANDS, main
from glassgate.tasks import TASKS

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
sys.path.insert(0, str(SITE))
from checked import faults  # noqa: E402
from index import INDEX, sections  # noqa: E402
from notebooks import page_of as page_of_notebook  # noqa: E402
from notebooks import pages as notebooks  # noqa: E402

ELSEWHERE = {
    "zh-CN.md": "README.zh-CN.md",
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Files outside of docs/ that are pages of the site, by address."""

HOMES = {"docs/README.md": "index.md", "README.md": "index.md", **{file: page for page, file in ELSEWHERE.items()}}
"""The page of the site for a file of the project, if it is not the same path below docs/."""

REFERENCE = {
    "layers": ("Layers", ["LSTM", "GRU", "RNN", "Recurrent", "LSTMCell", "GRUCell", "RNNCell", "RecurrentCell"]),
    "cells": ("Cells", ["Cell", "Parameter", "check", "cells", "cell_to_json", "cell_from_json"]),
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
"""Pages of the reference: title and public names."""

ALSO = {
    "record": ["glassgate.glass.record.Tape"],
    "explain": ["glassgate.engines.choose.Choice"],
    "freeze": ["glassgate.sessions.session.Session"],
}
"""Classes of the results of public names, shown below them."""

MEMBERS = {"Cell": "[step, project]", "Recurrent": "[forward, stream]", "RecurrentCell": "[forward]", "cells": "false"}
"""The members shown below a name, if not all."""

_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> None:
    """Derive the navigation from docs/README.md; the generated reference comes first in its section."""
    config.nav = [{"Home": "index.md"}]
    for heading, pages in sections(INDEX.read_text("utf-8")).items():
        entries = [{title: page_of(file)} for title, file in pages.items()]
        if heading == "Reference":
            generated = [{title: f"reference/{key}.md"} for key, (title, _) in REFERENCE.items()]
            last = {"Command line": "reference/commands.md"}
            entries = [{"Names": "reference/index.md"}, *generated, last, *entries]
        config.nav.append({heading: entries})


def page_of(file: str) -> str:
    """Return the page of the site for a file that docs/README.md names."""
    path = posixpath.normpath(posixpath.join("docs", file))
    return HOMES.get(path) or page_of_notebook(path.removeprefix("docs/"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/."""
    written = {"index.md": home(), **reference()}
    written |= {page: moved(text, f"docs/{page}", page) for page, text in notebooks().items()}
    written |= {page: moved((ROOT / file).read_text("utf-8"), file, page) for page, file in ELSEWHERE.items()}
    for address, text in written.items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links in the pages of docs/ by links to pages of the site."""
    here = page.file.src_uri
    if page.file.generated_by:
        return markdown
    return moved(markdown, f"docs/{here}", here)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the files of the project that pages link to, and check the site."""
    site = Path(config.site_dir).resolve()
    for name in sorted(_COPIED):
        target = site / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target.with_name(target.name + _SHOWN.get(target.suffix, "")))
    (site / ".nojekyll").touch()  # GitHub Pages shows the folder as it is
    if wrong := faults(site):
        raise PluginError("\n".join(wrong))


_COPIED: set[str] = set()
_SHOWN = {".py": ".txt", ".cff": ".txt", "": ".txt"}
"""Suffixes that are added, because browsers show text and would download other files."""


def moved(markdown: str, file: str, address: str) -> str:
    """Return a file of the project as a page of the site: its links point to pages, or to copies of files."""

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(file), match[2]))
        if not (ROOT / target).exists():
            raise PluginError(f"{file} links to {match[2]}, which does not exist")
        there = HOMES.get(target) or page_of_notebook(target.removeprefix("docs/"))
        if there == target:  # neither a page nor below docs/
            _COPIED.add(target)
            there = f"files/{target}" + _SHOWN.get(posixpath.splitext(target)[1], "")
            depth = address.count("/")
            return f'{match[1]}{"../" * depth}{there}{match[4]}{{data-file=""}}'
        return match[1] + posixpath.relpath(there, posixpath.dirname(address) or ".") + (match[3] or "") + match[4]

    return _LINK.sub(lead, markdown)


def home() -> str:
    """Return the README, preceded by a picture of the report and three lines of code."""
    readme = moved((ROOT / "README.md").read_text("utf-8"), "README.md", "index.md")
    title, sentence, chinese, rest = readme.split("\n\n", 3)
    page = (SITE / "home.md").read_text("utf-8")
    values = {"TITLE": title.removeprefix("# "), "SENTENCE": sentence, "CHINESE": chinese}
    for name, value in values.items():
        page = page.replace(f"{{{name}}}", value.strip())
    return page.replace("{REST}", re.sub(r"^!\[.*\n\n", "", rest, count=1, flags=re.MULTILINE))


def reference() -> dict[str, str]:
    """The pages of the reference, by address."""
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
    pages["reference/commands.md"] = _commands()
    return pages


def _path(name: str) -> str:
    home = gg._MODULES[name]
    return f"{home}.{name}"


def _anchor(name: str) -> str:
    return "" if gg._MODULES[name] == "glassgate" else f"#{_path(name)}"


def _summary(value: Any) -> str:
    return (value.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|").strip()


def _page(title: str, names: list[str]) -> str:
    parts = []
    for name in names:
        module = gg._MODULES[name] == "glassgate"
        if name == "cells":
            parts += ["## The built-in cells\n", *(_cell(cell) for cell in gg.cells.__all__)]
        elif module:
            parts += [f"::: {_path(name)}\n    options: {{show_root_heading: false, show_root_toc_entry: false}}\n"]
        else:
            shown = f"    options: {{members: {MEMBERS[name]}}}\n" if name in MEMBERS else ""
            parts += [f"::: {path}\n{shown}" for path in (_path(name), *ALSO.get(name, ()))]
    return f"# {title}\n\n" + "\n".join(parts)


def _cell(name: str) -> str:
    """Return the docstring of a cell and the source of its step."""
    source = inspect.getsource(getattr(gg.cells, name).step)
    options = "    options: {heading_level: 3, members: false}\n"
    return f"::: glassgate.cells.{name}\n{options}\n```python\n{textwrap.dedent(source)}```\n"


def _commands() -> str:
    """The output of `--help` for every command and task."""
    parts = ["# Command line\n\n`glassgate COMMAND`, or `python -m glassgate COMMAND`.\n"]
    os.environ["COLUMNS"] = "92"
    rows = [([name], summary) for name, summary in COMMANDS.items()]
    at = [name for name in COMMANDS].index("train") + 1
    rows[at:at] = [(["train", name], task.summary) for name, task in TASKS.items()]
    for words, summary in rows:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([*words, "--help"])
        mark = "#" * (len(words) + 1)
        text = summary[0].upper() + summary[1:]
        parts += [f"{mark} glassgate {' '.join(words)}\n\n{text}.\n\n```text\n{printed.getvalue().rstrip()}\n```\n"]
    return "\n".join(parts)
