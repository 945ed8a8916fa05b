"""The package: the modules that `import glassgate` loads, and the code and commands of each page."""

import ast
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import glassgate as gg
from glassgate.cli import main
from tests.tasks.conftest import _no_pictures, _no_waiting_for_the_disk  # noqa: F401
from tests.words import count, is_hard, messages, of_module, of_page, sentences

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LIBRARIES = ("torch", "llvmlite", "torchmetrics", "safetensors", "matplotlib", "tensorboard", "rich", "yaml")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


PREDICT = (
    "import glassgate.cli.predict, glassgate.cli.report; from glassgate.tasks import TASKS, task_class; "
    "[*map(task_class, TASKS)]"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import glassgate", []),
        ("import glassgate as gg; gg.LSTM", ["torch"]),
        (PREDICT, ["torch", "safetensors", "rich", "yaml"]),
    ],
)
def test_import_loads_only_used_libraries(code: str, expected: list[str]) -> None:
    code += "; import sys; print(*(name for name in sys.argv[1:] if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code, *LIBRARIES], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == expected


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in gg.__all__:
        assert getattr(gg, name).__doc__, name
    assert dir(gg) == sorted([*gg.__all__, "__version__"])
    with pytest.raises(AttributeError, match="module 'glassgate' has no attribute 'LSTN'"):
        gg.LSTN  # noqa: B018


def test_type_checkers_import_every_public_name_from_its_module() -> None:
    """Each name is listed twice: among the imports for type checkers, and in the table that `__getattr__` reads."""
    block = next(node for node in ast.parse(Path(gg.__file__).read_text("utf-8")).body if isinstance(node, ast.If))
    seen = {(a.name, each.module) for each in block.body if isinstance(each, ast.ImportFrom) for a in each.names}
    assert seen == set(gg._MODULES.items())


def test_the_changelog_has_the_version() -> None:
    assert f"## [{gg.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_page_on_the_architecture_lists_each_module_in_the_order_of_imports() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    modules = {path.stem for path in (ROOT / "glassgate").iterdir() if path.name[0] not in "._" and path.stem != "py"}
    assert {name for name in modules if not re.search(rf"`{name}(\.py|/)`", page)} == set()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    order = " -> ".join(layer.strip("()").replace(" | ", ", ") for layer in contracts[0]["layers"][1:])
    assert f"`{order}`" in page.replace("\n", " ")


RUN = [page for page in PAGES if blocks(page, "python") and ".zh-CN" not in page.name]
"""The pages whose code runs. Chinese pages have the same code (tests/test_translations.py)."""


@pytest.mark.parametrize("page", RUN, ids=relative)
def test_code_of_pages_prints_the_commented_output(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in order, as a reader would type them; `print(x)  # 3` must print 3."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for code in blocks(page, "python"):
        expected, printed = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE), io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        assert [line for line in printed.getvalue().splitlines() if expected] == expected


SENTENCE = """\
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tsleeps\tsleep\tVERB\tVBZ\t_\t0\troot\t_\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

"""


needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="the commands of the pages are for a POSIX shell")


def run_lines(lines: list[str]) -> str:
    """Run lines of a shell in order and return their output.

    Commands of glassgate run in this process, which has loaded the libraries; lines with a pipe run in a shell.
    """
    output = io.StringIO()
    for line in lines:
        program, *words = shlex.split(line)
        if Path(program).name == "glassgate" and "|" not in words:
            with redirect_stdout(output):
                assert main(words) == 0, line
        else:
            bash = ["bash", "-e", "-o", "pipefail", "-c", line]
            output.write(subprocess.run(bash, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return output.getvalue()


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands train 250 epochs on a few sentences, which 60 epochs learn, too."""
    monkeypatch.setattr("glassgate.tasks.training.schedule._MAX_EPOCHS", 60)


@needs_shell
@pytest.mark.usefixtures("few_epochs")
def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in a folder with the files that they name, except those of make, which run this test."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conllu").write_text(SENTENCE * 8, "utf-8")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    commands = [line for line in "".join(blocks(README, "sh")).splitlines() if not line.startswith("make ")]
    assert "sleeps\tVERB" in run_lines(commands)
    assert "sleeps" in (tmp_path / "words.html").read_text("utf-8")


@needs_shell
def test_the_commands_for_chinese_text_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with their own data: four sentences, a label per character, and raw text without spaces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}")
    printed = run_lines(blocks(ROOT / "docs/tagging.md", "sh")[1].splitlines())
    assert "他\tO\n爱\tO\n北\tB-LOC\n京\tI-LOC\n" in printed
    assert "北" in (tmp_path / "zi.html").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_make_has_the_targets_of_the_pages(page: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(blocks(page, "sh")))) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_have_targets(page: Path) -> None:
    for target in links(page):
        assert (page.parent / target).exists(), target


def test_the_index_lists_each_page_once() -> None:
    """docs/README.md, from which the navigation of the site is derived."""
    spec = importlib.util.spec_from_file_location("index", ROOT / "docs/site/index.py")
    assert spec is not None
    assert spec.loader is not None
    index = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(index)
    listed = [file for pages in index.read_sections(index.INDEX.read_text("utf-8")).values() for file in pages.values()]
    missing = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"} - set(listed)
    assert not missing, f"docs/README.md lacks {missing}"
    with pytest.raises(ValueError, match="expected each page once, below a heading, got '- \\[B"):
        index.read_sections("## One\n- [A](a.md)\n## Two\n- [B](a.md)")


def links(page: Path) -> set[str]:
    """The files of this project that a page links to or shows."""
    return set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")))


HARD_TO_READ = {"pages": 0.001, "modules": 0.001, "messages": 0.002}
"""Bounds of the fractions of sentences that are hard to read."""


def test_few_sentences_are_hard_to_read() -> None:
    sources = [
        path for folder in ("glassgate", "tests", "docs", "experiments") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    pages = [*PAGES, ROOT / "benchmarks/README.md"]
    counts = {
        "pages": count(text for page in pages for text in of_page(page)),
        "modules": count(text for source in sources for text in of_module(source)),
        "messages": count(text for source in ROOT.glob("glassgate/**/*.py") for text in messages(source)),
    }
    for name, bound in HARD_TO_READ.items():
        counted = counts[name]
        assert counted.fraction <= bound, f"{name}: {counted.fraction:.2%}\n" + "\n".join(counted.hard)


@pytest.mark.parametrize(
    ("text", "hard"),
    [
        ("The page says what is wrong with the cell.", True),
        ("Weights are read as they lie in memory.", True),
        ("There are no other processes but this one.", True),
        ('The message "what is wrong with it" is quoted.', False),
        ("Weights are read without a copy.", False),
        ("what is short", False),
    ],
)
def test_hard_sentences_are_recognised(text: str, hard: bool) -> None:
    assert [each for each in sentences(text) if is_hard(each)] == ([text] if hard else [])
