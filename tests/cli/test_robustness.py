"""What befalls a command: signals, closed and full outputs, odd names, absurd values. Each ends in one sentence."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from glassgate.cli import main
from glassgate.cli.progress import Bar
from glassgate.tasks import task_class_of_run
from glassgate.tasks.data.texts import Text
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.language_model.task import sample_token
from glassgate.tasks.runs import write
from glassgate.tasks.task import Split
from tests.tasks.corpus import sentences, write_conllu

SMALL = ["--hidden-size=8", "--embedding-size=8", "--epochs=1", "--least-count=1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_conllu(tmp_path_factory.mktemp("data") / "train.conllu", sentences(100))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a language model."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    model = LanguageModel(LanguageModelOptions(hidden_size=4, epochs=1, batch_size=2))
    model.fit(Split([Text("tick tock " * 20)]), run=folder)
    return folder


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a failed command: one line, after those of its progress."""
    out, err = capsys.readouterr()
    assert not out
    (message,) = re.findall(r"^glassgate .*\n\Z", err, re.MULTILINE)
    return message


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_training_with_its_status_and_the_run_can_be_resumed(
    number: int,
    status: int,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal ends a training with its own status, as it ends any program."""
    with monkeypatch.context() as patched:
        patched.setattr(Bar, "step", lambda self, units, loss: signal.raise_signal(number))
        with pytest.raises(SystemExit) as ended:
            main(["train", "tagging", f"--data={data}", f"--run={tmp_path}/run", *SMALL])
    assert ended.value.code == status
    how = "interrupted" if number == signal.SIGINT else "terminated"
    assert f"{how}\nresume with: glassgate train --resume {tmp_path}/run\n" in capsys.readouterr().err
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    assert main(["train", "--resume", f"{tmp_path}/run"]) == 0


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_libraries_load_ends_the_command_quietly(number: str, status: int) -> None:
    script = (
        "import os, signal, sys\n"
        "class Presses:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == 'rich': os.kill(os.getpid(), signal.{number})\n"
        "sys.meta_path.insert(0, Presses())\n"
        "from glassgate.cli import main\n"
        "sys.exit(main(['train', 'tagging']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr in ("glassgate train: interrupted\n", "glassgate train: terminated\n")


def test_a_signal_in_a_command_that_a_module_runs_at_its_import_cleans_up(tmp_path: Path) -> None:
    """That module is being imported all the time; the command is not."""
    (tmp_path / "job.py").write_text(
        "import os, signal, sys\n"
        "import glassgate.cli as cli\n"
        "def command(words):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    finally:\n"
        "        print('cleaned up')\n"
        "cli.import_module = lambda name: type('', (), {'command': command})\n"
        "status = cli.main(['train'])\n"
    )
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import job; sys.exit(job.status)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleaned up\n", "glassgate train: terminated\n")


def test_trainings_side_by_side_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """A kill -9 of the demo leaves it no time to stop them."""
    job = tmp_path / "job.py"
    job.write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "def wait(place, progress):\n"
        "    Path(place).with_suffix('.part').write_text(str(os.getpid()))\n"
        "    Path(place).with_suffix('.part').rename(place)\n"
        "    time.sleep(600)\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from functools import partial; from job import wait\n"
        "from rich.console import Console; from glassgate.cli.progress import display\n"
        "from glassgate.cli.parallel import run_parallel\n"
        f"jobs = {{'one': partial(wait, {str(tmp_path / 'pid')!r})}}\n"
        "if __name__ == '__main__': run_parallel(jobs, display(Console()))"
    )
    (tmp_path / "main.py").write_text(script)
    process = subprocess.Popen([sys.executable, str(tmp_path / "main.py")], stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists():
        assert process.poll() is None
        time.sleep(0.01)
    worker = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_signal_to_trainings_side_by_side_ends_all_of_them_while_one_has_finished(tmp_path: Path) -> None:
    """A terminal, `timeout` and batch systems send the signal to the whole group of processes."""
    (tmp_path / "job.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from glassgate.tasks.training.signals import StopRequest\n"
        "def finish(place, progress): pass\n"
        "def train(place, progress):\n"
        "    request = StopRequest(progress)\n"
        "    with request.listen():\n"
        "        Path(place, 'ready').touch()\n"
        "        while not request.received:\n"
        "            time.sleep(0.01)\n"
        "        time.sleep(0.5)\n"
        "    Path(place, 'saved').touch()\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from functools import partial; import job\n"
        "from rich.console import Console; from glassgate.cli.progress import display\n"
        "from glassgate.cli.parallel import run_parallel; from glassgate.cli.stopping import stoppable\n"
        f"jobs = {{f.__name__: partial(f, {str(tmp_path)!r}) for f in (job.finish, job.train)}}\n"
        "if __name__ == '__main__':\n"
        "    with stoppable('demo'): run_parallel(jobs, display(Console()))"
    )
    (tmp_path / "main.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py")], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.5)  # `finish` has ended
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert "Interrupted: 15" in err
    assert (tmp_path / "saved").exists()


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_link_in_the_place_of_an_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.json.part").symlink_to(tmp_path / "precious")
    write(tmp_path / "a.json", b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert not (tmp_path / "a.json").is_symlink()


def test_a_run_that_cannot_be_written_is_refused_before_data_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for run, message in [
        ("x" * 300, "cannot create the run folder .*[Nn]ame too long.*; give another --run"),
        (tmp_path / "file" / "run", "cannot create the run folder .*; give another --run"),
        ("/proc/run", "cannot create the run folder"),
    ]:
        assert main(["train", "tagging", "--data=none.tsv", f"--run={run}"]) == 2
        err = said(capsys)
        assert re.search(message, err) or (run == "/proc/run" and "no such file" in err)
    assert main(["demo", f"--run={tmp_path}"]) == 2
    assert "expected a new or empty folder" in said(capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hidden-size=100000000000"], "hidden_size: expected 65,536 or less, got 100000000000"),
        (["--batch-size=99999999999"], "batch_size: expected 2,147,483,647 or less"),
        (["--seed=99999999999999999999999"], "seed: expected 9,223,372,036,854,775,807 or less"),
        (["--learning-rate=inf"], "learning_rate: expected a finite number, got inf"),
        (
            ["--hidden-size=65536", "--embedding-size=65536", "--num-layers=1000"],
            "does not fit into memory .*; choose a",
        ),
    ],
)
def test_absurd_sizes(
    words: list[str], message: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "tagging", f"--data={data}", f"--run={tmp_path}/run", *words]) == 2
    err = capsys.readouterr().err
    assert re.search(message, err)
    assert "Traceback" not in err


def test_demo_every_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--every=0"])
    assert "glassgate demo: --every: expected 1 or more, got 0" in capsys.readouterr().err


def test_the_lowest_temperature_takes_the_likeliest() -> None:
    random = torch.Generator().manual_seed(1)
    assert {sample_token(torch.tensor([1.0, 9.0, 8.9]), 1e-300, 0, 1.0, random) for _ in range(9)} == {1}


def test_a_seed_beyond_torchs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(run), "--seed=99999999999999999999999", "--temperature=1e-300"]) == 2
    assert "seed: expected 0 to 2**64 - 1" in said(capsys)
    assert main(["generate", str(run), "--seed=1", "--temperature=1e-300", "--length=5"]) == 0


NESTED = "[" * 100_000


def with_options(content: dict[str, Any], **options: int) -> str:
    return json.dumps(content | {"options": content["options"] | options})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content: NESTED, "damaged or cut short"),
        (lambda content: json.dumps(content | {"vocabularies": [1]}), "damaged or cut short"),
        (lambda content: json.dumps(content | {"vocabularies": {}}), "no network can be built from it|do not fit"),
        (lambda content: json.dumps(content | {"format": 1e400}), "damaged or cut short"),
        (lambda content: json.dumps(content | {"task": []}), "damaged or cut short"),
        (lambda content: json.dumps(content | {"options": {"hidden_size": "many"}}), "made by another version"),
        (lambda content: with_options(content, hidden_size=7), "the weights do not fit the options in run.json"),
        (lambda content: with_options(content, num_layers=3), "the weights do not fit the options in run.json"),
    ],
)
def test_an_edited_run(
    edit: Callable[[dict[str, object]], str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "run.json").read_text()
    (run / "run.json").write_text(edit(json.loads(before)))
    try:
        assert main(["evaluate", str(run), "none.txt"]) == 2
    finally:
        (run / "run.json").write_text(before)
    assert re.search(message, said(capsys))


def test_nested_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text(NESTED + "\n")
    assert main(["train", "classification", f"--data={tmp_path}/a.jsonl"]) == 2
    assert re.search(r"a\.jsonl:1: expected a JSON object in one line", said(capsys))
    (tmp_path / "a.json").write_text(NESTED)
    assert main(["train", "classification", f"--config={tmp_path}/a.json"]) == 2
    assert "--config" in said(capsys)


def test_devices_and_closed_input_are_no_data(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["evaluate", str(run), "/dev/zero"]) == 2
    assert "/dev/zero: this is a device, not a file; give a file, or - for standard input" in said(capsys)
    assert main(["train", "tagging", "--config=/dev/zero"]) == 2
    assert "--config /dev/zero: this is a device" in said(capsys)
    assert main(["evaluate", str(run), "x" * 300 + ".txt"]) == 2
    assert "File name too long" in said(capsys)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert main(["predict", str(run), "-"]) == 2
    assert "standard input: this is a device, not a file; send text through a pipe, or give a file" in said(capsys)
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(run), "-"]) == 2
    assert "standard input: it is closed; give a file" in said(capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_full_closed_and_narrow_output() -> None:
    """On a command that loads no library; all write through the same place."""
    words = [sys.executable, "-c", "import sys, glassgate.cli as cli; CODE; sys.exit(cli.main(['train']))"]
    words[2] = words[2].replace(
        "CODE", "cli.import_module = lambda name: type('', (), {'command': lambda words: print('\\u5b57')})"
    )
    around = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, text=True, env=around, check=False)
    assert (done.returncode, done.stdout) == (0, "\\u5b57\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "glassgate train: No space left on device\n")
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_extra_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("glassgate.cli.evaluate", "glassgate.tasks.metrics.scores"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    assert main(["evaluate", "runs/x", "x.tsv"]) == 2
    assert said(capsys) == (
        "glassgate evaluate: the package torchmetrics is not installed; install it with: "
        "pip install 'glassgate[tasks]'\n"
    )


def test_names_that_are_no_unicode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    data = write_conllu(folder / "train.conllu", sentences(8))
    run = tmp_path / "run"
    assert main(["train", "tagging", f"--data={data}", f"--test={data}", f"--run={run}", *SMALL]) == 0
    assert task_class_of_run(run).load(run).options.data == str(data)
    assert main(["evaluate", str(run), str(data)]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(run), f"{folder}/none.conllu"]) == 2
    assert "no such file" in said(capsys)
    assert main(["train", "tagging", f"--data={data}", f"--run={folder}/run"]) == 2
    assert "its name is not UTF-8" in said(capsys)


def test_a_long_field_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "long " * 40_000 + ",a\nshort,b\n")
    task = run_task("classification")
    assert [len(each.content) for each in task.read(path)] == [40_000, 1]


def run_task(name: str):  # type: ignore[no-untyped-def]
    from glassgate.tasks import task_class

    kind = task_class(name)
    return kind(kind.options_type())


def test_standard_input_may_be_text(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"tick\n")))
    assert main(["predict", str(run), "-"]) == 0
