"""Options name the expected values in errors; the command line, YAML and JSON carry the same values."""

import json
from pathlib import Path

import pytest
import yaml

import glassgate as gg
from glassgate.tasks.cells import CELLS, build_cell
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import read_config
from glassgate.tasks.tagging import TaggingOptions


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: expected 1 or more, got 0"),
        ({"hidden_size": "many"}, "hidden_size: expected a value of type int, got 'many'"),
        ({"hidden_size": True}, "hidden_size: expected a value of type int, got True"),
        ({"bidirectional": 1}, "bidirectional: expected a value of type bool, got 1"),
        ({"dropout": 1.5}, "dropout: expected 1 or less, got 1.5"),
        ({"dropout": float("nan")}, "dropout: expected 0 or more, got nan"),
        ({"learning_rate": "fast"}, "learning_rate: expected a value of type float, got 'fast'"),
        ({"cell": "lsmt"}, "cell: expected a built-in cell or FILE.py:Class, got 'lsmt'; did you mean lstm"),
        ({"cell": "mine.py"}, "cell: expected a built-in cell or FILE.py:Class, got 'mine.py'; `glassgate cells`"),
        ({"cell": 3}, "cell: expected a name, FILE.py:Class or a gg.Cell that can be stored: .* got 3"),
        ({"cell": {"name": "Mine"}}, "cell: cell_from_json: expected the text that cell_to_json returns"),
        ({"epochs": None}, "epochs: expected a value of type int, got None"),
        ({"hiden_size": 3}, "unknown option 'hiden_size'; did you mean hidden_size"),
        ({"xyz": 3}, "unknown option 'xyz'; the options are data, dev,"),
    ],
)
def test_wrong_values(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TaggingOptions.from_mapping(values)


def test_built_in_cells_by_name_in_any_case() -> None:
    built_in = {name: getattr(gg.cells, name) for name in gg.cells.__all__}
    built_in |= gg.cells.CLASSIC | gg.cells.STATE_SPACES | gg.cells.MATRIX_MEMORIES
    of_features = {name for name, cell in built_in.items() if len(cell.inputs) <= 1}
    assert list(CELLS) == sorted(name.lower() for name in of_features)
    for name in of_features:
        assert TaggingOptions(cell=name) == TaggingOptions(cell=name.lower())


def test_yaml_and_json_carry_all_values(tmp_path: Path) -> None:
    options = TaggingOptions(data="a: b.tsv", learning_rate=1e-5, bidirectional=False, label_suffix="#")
    (tmp_path / "a.yaml").write_text(options.to_yaml())
    (tmp_path / "a.json").write_text(json.dumps(options.to_mapping()))
    for name in ("a.yaml", "a.json"):
        assert TaggingOptions.from_mapping(read_config(tmp_path / name)) == options


def test_yaml_numbers_without_a_point(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("learning_rate: 1e-3\ndropout: 0\n")
    assert isinstance(yaml.safe_load("1e-3"), str)
    options = TaggingOptions.from_mapping(read_config(tmp_path / "a.yaml"))
    assert (options.learning_rate, options.dropout) == (0.001, 0.0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", b"a: [1", r"--config .*a\.yaml: expected YAML, got what does not parse"),
        ("a.yaml", b"\xff\xfe", r"--config .*a\.yaml: expected YAML, got what does not parse"),
        ("a.yaml", b"- 1", r"--config .*a\.yaml: expected lines of `name: value`, got list"),
        ("a.json", b"{1", r"--config .*a\.json: expected JSON, got what does not parse"),
        ("a.json", b"[1]", r"--config .*a\.json: expected a JSON object of names and values, got list"),
    ],
)
def test_files_without_options(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=message):
        read_config(tmp_path / name)


def test_arguments_of_a_cell() -> None:
    options = TaggingOptions(cell="GLA( heads=2,key_size = 8 )")
    assert options.cell == "gla(heads=2, key_size=8)"
    assert repr(build_cell(options.cell)) == "GLA(heads=2, key_size=8)"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("gla(2)", r"cell: expected keyword arguments, such as gla\(heads=4\), got 'gla\(2\)'"),
        ("gla(heads=__import__('os'))", "cell: expected keyword arguments, .* got .gla"),
        ("gla(head=2)", r"cell: .*gla.* 'head'; see `glassgate cells GLA`"),
        ("gla(heads=0)", "cell: cell GLA: heads must be a positive integer, got 0; see `glassgate cells GLA`"),
        ("gla(heads=2", "cell: expected keyword arguments"),
        ("gla(**{})", "cell: expected keyword arguments"),
        ("slstm(heads=2.0)", "cell: SLSTM: heads must be a positive integer, got 2.0"),
    ],
)
def test_wrong_arguments_of_a_cell(cell: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        TaggingOptions(cell=cell)
