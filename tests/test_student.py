"""The pictures of the student page are those that its code and docs/draw_student.py draw."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
HEAT_MAPS = ("forget.svg", "state.svg")  # their last digits depend on the processor


def test_pictures_equal_those_of_the_page(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("draw_student", DOCS / "draw_student.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = {**script.run_page(tmp_path), **script.matrices()}
    assert drawn.keys() == {path.name for path in (DOCS / "student").glob("*.svg")}
    changed = [name for name, svg in drawn.items() if svg != (DOCS / "student" / name).read_text("utf-8")]
    assert set(changed) <= set(HEAT_MAPS), "run: python docs/draw_student.py"
