"""The commands as a user calls them: output, files, and messages about mistakes."""

import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from argparse import SUPPRESS
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file

import glassgate as gg
from glassgate.cli import COMMANDS, main
from glassgate.cli.parser import Parser
from glassgate.cli.progress import display
from glassgate.tasks import TASKS, task_class
from tests.forked import run_python
from tests.tasks.corpus import sentences, write_conllu

SMALL = ["--hidden-size=8", "--embedding-size=8", "--epochs=6", "--least-count=1", "--learning-rate=0.05"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.conllu and dev.conllu."""
    folder = tmp_path_factory.mktemp("data")
    write_conllu(folder / "train.conllu", sentences(100))
    write_conllu(folder / "dev.conllu", sentences(20, seed=1))
    return folder


@pytest.fixture(scope="module")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory, pictures: None) -> Path:
    """A trained run, with its pictures."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", "tagging", f"--data={files}/train.conllu", f"--dev={files}/dev.conllu", f"--run={folder}", *SMALL]
    assert main(words) == 0
    return folder


def test_train_leaves_json_and_safetensors_alone(run: Path) -> None:
    assert {path.suffix for path in run.iterdir() if path.is_file()} == {".json", ".safetensors", ".png"}
    assert sorted(path.name.split(".")[0] for path in (run / "logs").iterdir()) == ["events", "metrics"]
    assert json.loads((run / "run.json").read_text())["options"]["hidden_size"] == 8
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["dev"]["accuracy"] > 0.9
    assert len(metrics["history"]) == 6
    assert load_file(run / "model.safetensors")


def test_export_writes_a_session(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, task = tmp_path / "tagger.safetensors", task_class("tagging").load(run)
    assert main(["export", str(run), "--to", "session", "--weight-precision", "int8", "-o", str(path)]) == 0
    assert f"gg.load_session('{path}', model=Tagging.load('{run}').network)" in capsys.readouterr().out
    session = gg.load_session(path, model=task.network)
    assert "precision='int8'" in repr(session)
    encoded = task.encoded(sentences(3))
    output, batch, _ = next(task.outputs(encoded))
    torch.testing.assert_close(session(batch), output, atol=0.2, rtol=0)
    assert main(["export", str(run), "--to", "session", "--weight-precision", "bfloat16"]) in (0, 2)


@pytest.mark.parametrize(
    ("name", "words"), [("classification", "predict runs/x - <<<"), ("tagging", "predict runs/x FILE.py")]
)
def test_a_run_on_no_data_ends_with_what_can_be_tried_without_any(
    name: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_class(name), "fit", lambda *_, **__: {"dev": {}, "test": {}})
    assert main(["train", name, "--demo", "--run=runs/x"]) == 0
    assert f"try next:\n  glassgate {words}" in capsys.readouterr().out


def test_a_display_without_bars_leaves_nothing_behind() -> None:
    said = io.StringIO()
    with display(Console(file=said)):
        pass
    assert not said.getvalue()


def test_train_ends_with_what_to_try_next(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    test = f"{files}/dev.conllu"
    assert main(["train", "tagging", f"--data={files}/train.conllu", f"--test={test}", f"--run={folder}", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"test  accuracy \d+\.\d\d%  macro f1", out)
    assert out.endswith(f"try next:\n  glassgate evaluate {folder} {test}\n  glassgate predict {folder} {test}\n")
    assert "tagging  epoch 6  loss" in err
    assert "/s" in err


def test_evaluate(run: Path, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), f"{files}/dev.conllu", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    labels, unknown = scores.pop("by_label"), scores.pop("unknown_tokens")
    assert scores == pytest.approx(json.loads((run / "metrics.json").read_text())["dev"])
    assert unknown == 0
    assert sum(each["f1"] for each in labels.values()) / len(labels) == pytest.approx(scores["macro_f1"])
    true = [label for each in sentences(20, seed=1) for label in each.labels or ()]
    assert {name: each["support"] for name, each in labels.items()} == {name: true.count(name) for name in set(true)}
    assert main(["evaluate", str(run), f"{files}/dev.conllu"]) == 0
    out, err = capsys.readouterr()
    assert f"accuracy {scores['accuracy']:.2%}" in out
    assert "unknown tokens 0.00%\n\nlabel  precision   recall       f1  support\nNOUN " in out
    assert "warning" not in err


def test_evaluate_on_another_language(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "french.tsv").write_text("le\tDET\nchat\tNOUN\nvoit\tVERB\nthe\tDET\n")
    assert main(["evaluate", str(run), str(tmp_path / "french.tsv")]) == 0
    out, err = capsys.readouterr()
    assert "unknown tokens 75.00%" in out
    assert re.search(r"warning: 75% of the tokens of .*french.tsv are not in the training data: check that", err)


def test_predict_a_file_and_standard_input(
    run: Path, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["predict", str(run), f"{files}/dev.conllu"]) == 0
    blocks = capsys.readouterr().out.rstrip("\n").split("\n\n")
    examples = sentences(20, seed=1)
    assert [[row.split("\t")[0] for row in block.split("\n")] for block in blocks] == [
        list(each.tokens) for each in examples
    ]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat sees the dog likes\n")))
    assert main(["predict", str(run), "-"]) == 0
    assert capsys.readouterr().out == "the\tDET\ncat\tNOUN\nsees\tVERB\nthe\tDET\ndog\tNOUN\nlikes\tVERB\n\n"


def test_print_config_is_what_config_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "tagging", "--data=x.tsv", "--no-bidirectional", "--learning-rate=1e-05", "--print-config"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    config = tmp_path / "config.yaml"
    config.write_text(printed)
    assert main(["train", "tagging", f"--config={config}", "--print-config"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["train", "tagging", f"--config={config}", "--seed=7", "--print-config"]) == 0
    changed = yaml.safe_load(capsys.readouterr().out)
    assert (changed["seed"], changed["bidirectional"]) == (7, False)


def test_config_of_a_saved_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = json.loads((run / "run.json").read_text())["options"]
    (tmp_path / "config.json").write_text(json.dumps(options))
    assert main(["train", "tagging", f"--config={tmp_path}/config.json", "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == options


@pytest.mark.skipif(sys.platform == "win32", reason="no process can send Ctrl-C to another one")
def test_ctrl_c_tells_how_to_resume_and_resuming_ends_the_run(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["train", "tagging", f"--data={files}/train.conllu", f"--run={folder}", *SMALL, "--save-every=0"]
    script = "import sys; from glassgate.cli import main; sys.exit(main())"

    def interrupt(number: int) -> None:
        while not (folder / "checkpoint.safetensors").exists():
            os.kill(number, 0)  # it still runs
            time.sleep(0.01)
        os.kill(number, signal.SIGINT)

    done = run_python("-c", script, *words, "--epochs=10000", meanwhile=interrupt)
    assert done.returncode == 130
    assert f"interrupted\nresume with: glassgate train --resume {folder}\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["walk"], "unknown command 'walk'; the commands are train, evaluate"),
        (["train", "walking"], "no task is called 'walking'; there are tagging"),
        (["train"], "expected a task as the first word, or --resume RUN; the tasks are tagging, "),
        (
            ["train", "--data=x.tsv", "tagging"],
            "expected a task as the first word, or --resume RUN; the tasks are tagg",
        ),
        (["look", "none.xlsx"], r"look: none\.xlsx: no such file; check the path"),
        (["look", "none.mat"], r"look: none\.mat: no such file; check the path"),
        (["train", "tagging", "--data=none.tsv"], r"none\.tsv: no such file; check the path"),
        (["train", "tagging", "--dev=none.tsv"], "--dev and --test need --data"),
        (["train", "tagging", "--data=x.tsv", "--dropout=2"], "dropout: expected 1 or less, got 2.0"),
        (["train", "tagging", "--config=none.yaml"], r"--config none\.yaml: No such file"),
        (["train", "--resume", "nowhere"], "nowhere: no such run folder; `glassgate train TASK` makes one under runs/"),
        (["evaluate", "nowhere", "x.tsv"], "nowhere: no such run folder"),
        (["predict", ".", "x.tsv"], r"\.: expected a run folder, got one without run\.json; give the folder"),
    ],
)
def test_mistakes(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert re.search(message, err)
    assert not out
    assert not os.listdir(tmp_path)


def test_existing_run_is_not_overwritten(run: Path, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "model.safetensors").read_bytes()
    assert main(["train", "tagging", f"--data={files}/train.conllu", f"--run={run}"]) == 2
    assert (
        "expected a new or empty folder for the run, got one with files; give another --run" in capsys.readouterr().err
    )
    assert (run / "model.safetensors").read_bytes() == before


def test_help_names_all_commands_and_loads_no_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    script = (
        "import sys; from glassgate.cli import main; main(['--help']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'torchmetrics', 'rich', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.parametrize("task", TASKS)
def test_the_help_of_a_task_fits_on_one_screen_and_lists_all_options_on_demand(
    task: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    options = task_class(task).options_type
    shown = {}
    for words in ([], ["all"]):
        with pytest.raises(SystemExit, match="0"):
            main(["train", task, "--help", *words])
        out = capsys.readouterr().out
        shown[len(words)] = set(re.findall(r"^  (?:-h \[all\], )?--([a-z-]+)", out, re.MULTILINE))
        assert len(out.splitlines()) <= (24, 150)[len(words)], out
        assert "(True)" not in out
        assert "(0)" not in out
    assert shown[0] == {"run", *(name.replace("_", "-") for name in options.common)}
    assert len(shown[0]) == 10
    assert shown[1] >= shown[0] | {each.name.replace("_", "-") for each in dataclasses.fields(options)}


SAME = {"--beam", "--encoding", "--hidden-size", "--length-penalty", "--longest-blank", "--seed", "--help"}
"""Options of training and of commands for a trained run that mean the same."""


def test_no_option_of_a_command_means_something_else_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, set[str]] = {}

    def stop(parser: Parser, *_: object) -> None:
        shown = {name for each in parser._actions if each.help != SUPPRESS for name in each.option_strings}
        names[parser.prog] = {name for name in shown if name.startswith("--")}
        raise SystemExit

    monkeypatch.setattr(Parser, "parse_args", stop)
    other = [name for name in COMMANDS if name not in ("train", "look", "demo", "compare")]
    for words in (*(["train", task] for task in TASKS), *([name, "run"] for name in other)):
        with pytest.raises(SystemExit):
            main(words)
    training = set[str]().union(*(names[f"glassgate train {task}"] for task in TASKS))
    for name in other:
        assert names[f"glassgate {name}"] & training <= SAME


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate", "--frobnicate"], "unknown option --frobnicate"),
        (["evaluate", "--jason"], "unknown option --jason; did you mean --json?"),
        (["export", "RUN", "--too", "c"], "unknown option --too; did you mean --to?"),
        (["evaluate", "--json"], "the following arguments are required: RUN, FILE"),
        (["evaluate", "RUN", "FILE", "more", "--js"], "one word too many, 'more'"),
    ],
)
def test_an_unknown_option_is_named_before_missing_arguments(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert said in capsys.readouterr().err


def test_help_into_a_closed_pipe_prints_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "glassgate", "--help"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_do_not_spin_while_they_wait() -> None:
    """OpenMP reads its settings when torch loads, so they are set before; settings of the user take precedence."""
    code = """if True:
        import os, sys
        from glassgate.cli import main
        for given in ({}, {"OMP_WAIT_POLICY": "ACTIVE"}):
            assert given or "torch" not in sys.modules
            os.environ |= given
            try:
                main(["train", "tagging", "--help"])
            except SystemExit:
                print(os.environ["OMP_WAIT_POLICY"])
    """
    around = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], env=around, stdout=subprocess.PIPE, text=True, check=True)
    assert re.findall(r"^[A-Z]+$", done.stdout, re.MULTILINE) == ["PASSIVE", "ACTIVE"]


def test_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "glassgate", "walk"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("glassgate: unknown command 'walk'")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"glassgate \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)
