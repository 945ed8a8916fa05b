"""Converts notebooks to pages of the site, with their text, code and stored outputs."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from chinese import CHINESE, translate_picture

FOLDER = Path(__file__).parents[1] / "notebooks"
_DOWNLOAD = {
    False: '<a href="{0}" download data-file="">Download this notebook</a> to run it in Jupyter or Colab.',
    True: '<a href="{0}" download data-file="">下载本笔记本</a>，在 Jupyter 或 Colab 中运行。',
}
_OUTPUT = {False: "Output of this cell", True: "这个单元格的输出"}


class NotebookPage(NamedTuple):
    """A page, and its pictures by file name."""

    text: str
    pictures: dict[str, str]


def pages() -> dict[str, NotebookPage]:
    """Return the page of each notebook by its address."""
    return {page_of(f"notebooks/{path.name}"): _page(path) for path in sorted(FOLDER.glob("*.ipynb"))}


def page_of(file: str) -> str:
    """Return the address of the page for a file below docs/.

    Example:
        >>> page_of("notebooks/gates.ipynb"), page_of("cells.md")
        ('notebooks/gates.md', 'cells.md')
    """
    return file.removesuffix(".ipynb") + ".md" if file.endswith(".ipynb") else file


def _page(path: Path) -> NotebookPage:
    is_chinese = CHINESE in path.name
    parts: list[str] = []
    pictures: dict[str, str] = {}
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            if svg := _text(output, "image/svg+xml"):
                name = f"{path.stem}-{number}.svg"
                pictures[f"notebooks/{name}"] = translate_picture(svg) if is_chinese else svg
                parts.append(f"![{_OUTPUT[is_chinese]}]({name})")
            elif printed := "".join(output.get("text", ())):
                parts.append(f'```text title="{_OUTPUT[is_chinese]}"\n{printed.rstrip()}\n```')
    title, rest = parts[0].partition("\n")[::2]
    download = _DOWNLOAD[is_chinese].format(path.name)
    return NotebookPage("\n\n".join([title, download, rest.strip(), *parts[1:]]) + "\n", pictures)


def _text(output: dict[str, Any], kind: str) -> str:
    return "".join(output.get("data", {}).get(kind, ()))
