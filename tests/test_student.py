"""The pictures and interactive pages of the student page are those that its code and docs/draw_student.py write."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
HEAT_MAPS = {"forget.svg", "state.svg"}  # their last digits depend on the processor
SCREENSHOTS = {"report.png"}  # `make browser` writes it


def test_files_equal_those_of_the_page(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("draw_student", DOCS / "draw_student.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = script.files(tmp_path)
    assert written.keys() == {path.name for path in (DOCS / "student").iterdir()} - SCREENSHOTS
    changed = {name for name, text in written.items() if text != (DOCS / "student" / name).read_text("utf-8")}
    assert changed <= HEAT_MAPS, "run: python docs/draw_student.py"
