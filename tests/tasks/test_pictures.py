"""SVG files have short coordinates and exact labels, and equal figures give equal files."""

import re
from pathlib import Path

import pytest

from glassgate.tasks.pictures.charts import range_test_picture, save_figure

matplotlib = pytest.importorskip("matplotlib", reason="pictures need the extra pictures")


def test_coordinates_are_rounded_and_labels_are_not(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    for name in ("one.svg", "other.svg"):
        figure = Figure((3, 2))
        axes = figure.subplots()
        axes.plot([0.02631, 0.02634], [1 / 3, 2 / 3])
        axes.set_xticks([0.02631], ["0.02631"])
        save_figure(figure, tmp_path / name)
    svg = (tmp_path / "one.svg").read_text()
    assert svg == (tmp_path / "other.svg").read_text()
    assert ">0.02631<" in svg
    assert not re.search(r'd="[^"]*\d\.\d{4}', svg)


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_suffix_names_the_format(suffix: str, start: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"rate{suffix}"
    range_test_picture([1e-4, 1e-3, 1e-2], [2.0, 1.0, 3.0], 1e-3, path)
    assert path.read_bytes().startswith(start)
