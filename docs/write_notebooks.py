"""`python docs/write_notebooks.py [NAME ...]` runs the notebooks and stores their outputs.

A notebook NAME_solutions.ipynb has cells with the tag "answer". The script also writes NAME.ipynb, the exercises, in
which these cells are empty.
"""

import ast
import contextlib
import copy
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"
SUFFIX = "_solutions"
_TODO = {False: "# your answer\n", True: "# 你的答案\n"}


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def is_answer(cell: dict[str, Any]) -> bool:
    """Whether a cell is the answer to an exercise."""
    return "answer" in cell["metadata"].get("tags", ())


def exercises(notebook: dict[str, Any], is_chinese: bool = False) -> dict[str, Any]:
    """Return a notebook of solutions without the answers, and without the outputs that need them."""
    result = copy.deepcopy(notebook)
    for cell in code_cells(result):
        source = "".join(cell["source"])
        if is_answer(cell):
            cell["source"] = (_TODO[is_chinese] + cell["metadata"]["empty"]).splitlines(keepends=True)
        if is_answer(cell) or source.startswith("check_") or "hand_in" in source:
            cell["outputs"] = []
    return result


def run(notebook: dict[str, Any]) -> None:
    """Run the cells of a notebook in the current folder and store their outputs in it."""
    names: dict[str, object] = {"__name__": "__main__"}
    sys.path.insert(0, str(FOLDER))
    try:
        for number, cell in enumerate(code_cells(notebook), 1):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                value = _execute("".join(cell["source"]), names)
            cell["execution_count"], cell["outputs"] = number, _outputs(printed.getvalue(), value)
    finally:
        sys.path.remove(str(FOLDER))


def _execute(source: str, names: dict[str, object]) -> object:
    """Run a cell and return the value of its last line, if it is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def _outputs(printed: str, value: object) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)})
    if value is not None and str(value).startswith("<svg"):
        data = {"image/svg+xml": str(value).splitlines(keepends=True)}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return outputs


def read(path: Path) -> dict[str, Any]:
    """Return the content of a notebook."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def write(path: Path, notebook: dict[str, Any]) -> None:
    """Write a notebook, with the numbers of its cells as ids."""
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def exercises_of(path: Path) -> Path:
    """Return the path of the notebook with the exercises of a notebook of solutions."""
    return path.with_name(path.name.replace(SUFFIX, "", 1))


def main(names: list[str]) -> None:
    """Run the notebooks whose names begin with one of the given names, or all of them."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        has_solutions = SUFFIX in path.name or not path.with_name(path.name.replace(".", f"{SUFFIX}.", 1)).exists()
        if has_solutions and (not names or path.name.startswith(tuple(names))):
            notebook = read(path)
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                run(notebook)
            write(path, notebook)
            if SUFFIX in path.name:
                write(exercises_of(path), exercises(notebook, ".zh-CN" in path.name))
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
