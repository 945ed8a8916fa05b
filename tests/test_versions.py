"""The versions, the extras and the systems that pyproject.toml, the README and the workflow name are the same."""

import re

import yaml

from tests.matrix.build import EXTRAS, TEST_PACKAGES
from tests.test_platforms import PROJECT, ROOT


def test_the_workflow_tests_every_system_as_make_matrix_does() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    job = workflow["jobs"]["essential"]
    assert [name.partition("-")[0] for name in job["strategy"]["matrix"]["system"]] == [
        "ubuntu", "ubuntu", "macos", "windows"
    ]  # fmt: skip
    pythons = re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == [pythons[0], pythons[-1]]
    install, test = (step["run"] for step in job["steps"] if "run" in step)
    assert install == f'python -m pip install --editable ".[{EXTRAS}]" {" ".join(TEST_PACKAGES)}'
    assert test == "python -m pytest -n auto -m essential tests"


def test_the_table_of_versions_is_that_of_the_project() -> None:
    """The README, its translation and the classifiers agree with the declared versions."""
    oldest_python = PROJECT["requires-python"].removeprefix(">=")
    oldest = dict(re.findall(r"(\w+)>=([\d.]+)", " ".join(PROJECT["dependencies"])))
    pythons = re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert pythons[0] == oldest_python
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"| required | Python {oldest_python} or newer, torch {oldest['torch']} or newer |" in readme
    assert f"Python {pythons[0]} to {pythons[-1]}" in readme
    chinese = (ROOT / "README.zh-CN.md").read_text("utf-8")
    assert f"Python {oldest_python} 或更高版本，torch {oldest['torch']} 或更高版本" in chinese


def test_each_extra_installs_its_packages() -> None:
    """The names of packages in error messages are those of pyproject.toml."""
    from glassgate.extras import EXTRAS as extra_of

    named = {"yaml": "pyyaml", "sklearn": "scikit-learn", "onnx_ir": "onnxscript"}
    extras = PROJECT["optional-dependencies"]
    for package, extra in extra_of.items():
        assert any(named.get(package, package) in requirement.lower() for requirement in extras[extra]), package
    in_all = set(re.findall(r"\w+", extras["all"][0])) - {"glassgate"}
    assert in_all == {*extra_of.values()} - {"gpu"}  # PyTorch for CUDA contains Triton, which takes 690 MB elsewhere
