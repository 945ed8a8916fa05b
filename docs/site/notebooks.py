"""Converts notebooks to pages of the site, with their text and code, without outputs."""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "notebooks"


def pages() -> dict[str, str]:
    """Return the Markdown of each notebook by the address of its page."""
    return {page_of(f"notebooks/{path.name}"): _page(path) for path in sorted(FOLDER.glob("*.ipynb"))}


def page_of(file: str) -> str:
    """Return the address of the page for a file below docs/.

    Example:
        >>> page_of("notebooks/gates.ipynb"), page_of("cells.md")
        ('notebooks/gates.md', 'cells.md')
    """
    return file.removesuffix(".ipynb") + ".md" if file.endswith(".ipynb") else file


def _page(path: Path) -> str:
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, rest = parts[0].partition("\n")[::2]
    download = f'<a href="{path.name}" download data-file="">Download this notebook</a> to run it in Jupyter or Colab.'
    return "\n\n".join([title, download, rest.strip(), *parts[1:]]) + "\n"
