"""Other operating systems and versions of torch, simulated on this one; docs/engines.md lists the supported ones."""

import ast
import errno
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import llvmlite.binding as llvm
import pytest
import torch

import glassgate as gg
from glassgate.engines import traced_cells
from glassgate.engines.llvm_cpu import compile as compiling
from glassgate.engines.llvm_cpu.native import with_fields
from glassgate.engines.llvm_cpu.pool.own import SERVE
from glassgate.engines.torch_names import MISSING
from glassgate.system import SYSTEM
from glassgate.system.macos import MacOS
from glassgate.system.windows import Windows
from tests.foreign_objects import PERMITTED, TARGETS, _Machine, undefined_symbols

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_torch_has_the_private_names() -> None:
    """If a new version of torch lacks one, its fallback is correct but slow: look for the new name."""
    assert MISSING == []


WITHOUT_NAMES = """
import functools, sys
import torch
def missing(*arguments):
    raise AttributeError
lookup, functools.reduce = functools.reduce, missing
import glassgate.engines.torch_names
functools.reduce = lookup
import glassgate as gg
from glassgate.engines.torch_names import MISSING
assert len(MISSING) == 27, MISSING
torch.manual_seed(0)
x = torch.randn(5, 2, 3)
for name in ("LSTM", "GRU"):
    ours, theirs = getattr(gg, name)(3, 4), getattr(torch.nn, name)(3, 4)
    theirs.load_state_dict(ours.state_dict())
    for _ in range(3):
        torch.testing.assert_close(ours(x)[0], theirs(x)[0])
        with torch.no_grad():
            torch.testing.assert_close(ours(x)[0], theirs(x)[0])
    a, b = (torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters())) for layer in (ours, theirs))
    torch.testing.assert_close(a, b)
compiled = torch.compile(ours, backend="aot_eager")
torch.testing.assert_close(torch.autograd.grad(compiled(x)[0].square().sum(), list(ours.parameters())), a)
for transform in (torch.func.jacfwd, lambda f: torch.func.vmap(torch.func.grad(f)), torch.func.hessian):
    derivative = transform(lambda x: ours(x)[0].square().sum())
    by_kernels = derivative(x)
    with gg.engine("reference"):
        torch.testing.assert_close(by_kernels, derivative(x), rtol=1e-4, atol=1e-5)
"""


def test_missing_names_of_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NAMES], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


MINIMAL = """
from importlib.machinery import PathFinder
from glassgate.extras import EXTRAS
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in EXTRAS else find(name, *rest)
import torch
import glassgate as gg
from glassgate.cli import main
layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
layer(x)[0].sum().backward()
with gg.record(layer) as tape:
    layer(x)
tape.report("report.html")
tape.plot("layer0.forward.h")
gg.freeze(layer).save("session")
gg.load_session("session")(x)
gg.to_c(layer, "c")
gg.draw(layer)
for call in (
    lambda path: gg.to_onnx(layer, path),
    gg.from_onnx,
    lambda path: gg.dynamics.fixed_points(layer, torch.zeros(3), torch.zeros(2, 8)).plot(torch.zeros(5, 8), path),
    lambda path: __import__("glassgate.tasks.tagging.task"),
):
    try:
        call("file")
        print("no error")
    except ImportError as error:
        print(error)
try:
    with gg.engine("triton"):
        layer(x)
except gg.EngineError as error:
    print(error)
for command in ("demo", "look", "compare"):
    print(main([command, "file"]))
"""


def test_a_minimal_installation_names_the_extra_of_each_missing_package(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MINIMAL]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    extras = ["export", "export", "pictures", "tasks", "gpu"]
    lines = done.stdout.splitlines()
    assert [re.findall(r"pip install '?glassgate\[(\w+)\]", line) for line in lines[:5]] == [[name] for name in extras]
    assert lines[5:] == ["2"] * 3
    assert done.stderr.count("install it with: pip install 'glassgate[tasks]'") == 3


FORBIDDEN = """
import ctypes, warnings
import torch
assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE: memory can no longer become executable
import glassgate as gg
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    layer, x = gg.Recurrent(gg.cells.GRUv3(), 3, 4), torch.randn(5, 2, 3)
    for _ in range(2):
        layer(x)[0].sum().backward()
    layer.stream(2).step(x[0])
    gg.freeze(layer)(x)
print(*[w.message for w in caught], sep="\\n")
print(gg.explain(layer, x).engine)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forbids machine code on request")
def test_without_machine_code_layers_run_and_the_reason_is_named_once() -> None:
    done = subprocess.run([sys.executable, "-c", FORBIDDEN], capture_output=True, text=True, cwd=ROOT, check=False)
    if "assert ctypes" in done.stderr:
        pytest.skip("this Linux cannot forbid machine code")
    assert done.returncode == 0, done.stderr
    reason = "the operating system does not permit this process to generate machine code; layers run on slower engines"
    assert done.stdout == f"{reason}\nreference\n"


def test_constant_functions_of_cells_before_torch_2_12(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile then receives the address of the cell, and adds a guard on the cell's identity."""
    monkeypatch.setattr(traced_cells, "FIRST_WITH_OBJECTS", (99, 0))
    heads = traced_cells.assume_constant(lambda cell, factor: factor * cell.number)

    class Numbered(gg.cells.RNN):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    module = torch.nn.Module()
    module.cell = Numbered(3)
    compiled = torch.compile(lambda x: x * heads(module.cell, 2), backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)) == 6
    module.cell = Numbered(5)
    assert compiled(torch.ones(1)) == 10
    assert heads(module.cell, 3) == 15


@pytest.mark.parametrize("triple", TARGETS)
def test_kernels_for_other_systems_call_only_functions_that_these_have(
    triple: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling.loader_machine()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = _Machine(triple)
    monkeypatch.setattr(compiling, "target_machine", machine)
    entry = compiling._compile(with_fields(SERVE), "serve", 64, machine.processor)
    names = set(undefined_symbols(entry.content))
    assert "glassgate_yield" in names
    assert names <= PERMITTED


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels are for x86-64")
@pytest.mark.parametrize("run", ["coff", pytest.param("mach-o", marks=pytest.mark.matrix)])
def test_kernels_of_a_layer_run_as_those_of_other_systems(run: str) -> None:
    subprocess.run([sys.executable, "-m", "tests.foreign_objects", run], cwd=ROOT, check=True)


def test_a_missing_function_of_the_c_library_is_named() -> None:
    module = llvm.parse_assembly("declare void @no_such_function()\ndefine void @f() {\n ret void\n}")
    with pytest.raises(RuntimeError, match="which lacks no_such_function"):
        compiling._check_functions(module)


def test_a_file_that_is_open_in_another_program_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempts fail, as those of Windows do. Then the old file is moved aside, or the error has a remedy."""
    old, new, windows = tmp_path / "model.safetensors", tmp_path / "temporary", Windows()
    old.write_text("old", "utf-8")

    def refuse(source: object, target: object) -> None:
        raise PermissionError(13, "Access is denied", str(target))

    monkeypatch.setattr(os, "replace", refuse)
    new.write_text("new", "utf-8")
    windows.replace(new, old)
    assert old.read_text("utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]

    monkeypatch.setattr(os, "rename", refuse)
    monkeypatch.setattr("glassgate.system.windows.REPLACE_SECONDS", 0.0)
    new.write_text("newer", "utf-8")
    with pytest.raises(PermissionError) as caught:
        windows.replace(new, old)
    assert "close the program or object that has this file open" in caught.value.__notes__[0]
    assert old.read_text("utf-8") == "new"


def test_folders_of_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALAPPDATA", r"C:\Users\me\AppData\Local")
    assert str(Windows().cache_root()) == r"C:\Users\me\AppData\Local"
    monkeypatch.setenv("HOME", "/Users/me")
    assert MacOS().cache_root() == Path("/Users/me/Library/Caches")


def test_other_systems_have_the_defaults(tmp_path: Path) -> None:
    for system in (Windows(), MacOS()):
        assert system.processor_counter()() == (os.cpu_count() or 1)
        assert system.current_processor() is None
        assert system.openmp() is None
        assert system.processor_name()
        (tmp_path / "a").write_bytes(b"1")
        assert system.read_regular(tmp_path / "a")[0] == b"1"
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            system.read_regular(tmp_path)
        (tmp_path / "folder" / "inner").mkdir(parents=True)
        system.remove_folder(tmp_path / "folder")
        assert not (tmp_path / "folder").exists()
        path, file = system.temporary_file()
        with file:
            file.write(b"2")
        assert path.read_bytes() == b"2"


def test_the_openmp_of_this_process_is_found_without_its_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """On ARM, the wheels of torch keep libgomp's symbols private, so that only the list of libraries shows it."""
    if SYSTEM.openmp() is None:
        pytest.skip("torch has no GNU OpenMP here")
    expected = SYSTEM.openmp().omp_get_max_threads()  # type: ignore[union-attr]
    monkeypatch.setattr(SYSTEM, "_library", object())
    found = SYSTEM.openmp()
    assert found is not None
    assert found.omp_get_max_threads() == expected


OF_ONE_SYSTEM = re.compile(
    r"sys\.platform|os\.(name|uname|fork|register_at_fork|get\w*[ug]id|sysconf|sched_\w+|kill|setsid|O_NO\w+)\b"
    r"|platform\.system|signal\.(SIGKILL|SIGHUP|SIGALRM|SIGUSR\d)|/proc\b|\bCDLL|madvise|MADV_"
    r"|\b(fcntl|resource|pwd|grp|termios|winreg|msvcrt)\."
)
"""Names that some systems lack, and those that distinguish systems."""


def test_only_glassgate_system_reads_properties_of_systems() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (ROOT / "glassgate").rglob("*.py")
        if path.parent != ROOT / "glassgate/system"
        for match in OF_ONE_SYSTEM.finditer(ast.unparse(ast.parse(path.read_text("utf-8"))))
    ]
    assert not found


SIMULATED = """
import os
from pathlib import Path
import tests.simulated_system as simulated
simulated.pytest_load_initial_conftests()
from glassgate.system import SYSTEM
names = simulated.Without(os)
print(hasattr(names, "fork"), names.getpid() == os.getpid(), SYSTEM.openmp(), type(SYSTEM).__name__)
path = Path(FOLDER, "file")
with path.open("w"):
    for change in (path.unlink, lambda: path.rename(path.with_suffix(".old")), lambda: os.replace(__file__, path)):
        try:
            change()
        except PermissionError as error:
            print(error.strerror)
path.unlink()
"""


def test_the_simulated_windows_lacks_names_and_refuses_to_change_open_files(tmp_path: Path) -> None:
    code = SIMULATED.replace("FOLDER", repr(str(tmp_path))).replace("__file__", repr(__file__))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    first, *errors = done.stdout.splitlines()
    assert first == "False True None Windows"
    assert errors == ["The process cannot access the file because it is being used"] * 3


@pytest.mark.matrix
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_essential_tests_on_simulated_systems(system: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.simulated_system", "-m", "essential", "tests"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"GLASSGATE_SIMULATE": system}, check=True)


def test_commands_print_in_the_code_page_of_windows(tmp_path: Path) -> None:
    """Files are read in UTF-8, whatever the locale. Characters that the code page lacks are escaped."""
    path = tmp_path / "été.tsv"
    path.write_text("他\tO\nDëg\tNOUN\n\n" * 2, "utf-8")
    code_page = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-m", "glassgate", "look", str(path)]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=os.environ | code_page, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = done.stdout.decode("cp1252")
    assert "\\u4ed6" in printed
    assert "Dëg" in printed


def test_paths_of_windows_in_options() -> None:
    """The colon after a drive does not end the path of `FILE.py:Class`."""
    from glassgate.tasks.cells import is_in_file

    assert is_in_file(r"C:\models\mine.py:Mine")
    assert not is_in_file(r"C:\models\mine.py")


def test_a_pipe_that_windows_has_closed() -> None:
    for system, is_closed in ((Windows(), True), (MacOS(), False)):
        assert system.is_closed_pipe(OSError(errno.EINVAL, "Invalid argument")) == is_closed
        assert system.is_closed_pipe(BrokenPipeError())
        assert not system.is_closed_pipe(OSError(errno.EINVAL, "Invalid argument", "a file"))


def test_text_files_are_opened_with_an_encoding() -> None:
    """Without it, Windows would use cp1252."""
    faults = []
    for path in (ROOT / "glassgate").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _opens_text(node):
                faults.append(f"{path}:{node.lineno}")
    assert not faults


def _opens_text(call: ast.Call) -> bool:
    """Whether a call opens a text file without an encoding."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) == (name == "write_text")
    if isinstance(call.func, ast.Name) and name == "open":
        mode = call.args[1] if len(call.args) > 1 else None
        return not (isinstance(mode, ast.Constant) and "b" in str(mode.value)) and "devnull" not in ast.unparse(call)
    return False


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_of_windows(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from glassgate.cli import main

    path = tmp_path / "données.tsv"
    path.write_bytes(ending.join([*("Dëg\tNOUN", "runs\tVERB", "") * 3, ""]).encode())
    assert main(["look", str(path)]) == 0
    assert "Dëg" in capsys.readouterr().out
