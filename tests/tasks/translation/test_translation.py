"""Translation learns, resumes bit for bit, reports its attention, and names errors in its input."""

from pathlib import Path

import numpy as np
import pytest

from glassgate.cli import main
from glassgate.tasks.data.pairs import Pair, read_pairs
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import CHECKPOINT, MODEL
from glassgate.tasks.task import Split
from glassgate.tasks.translation import Search, Translation, TranslationOptions
from tests.tasks.training.test_resume import CtrlC, same_files

pytestmark = pytest.mark.usefixtures("kept_checkpoints")

LETTERS = "abcdef"


def reversals(count: int, seed: int) -> list[Pair]:
    random = np.random.default_rng(seed)
    words = ["".join(random.choice([*LETTERS], random.integers(2, 6))) for _ in range(count)]
    return [Pair(word, word[::-1]) for word in words]


SPLIT = Split(reversals(900, 1), reversals(40, 2), reversals(100, 3))
OPTIONS = {
    "source_tokens": "character",
    "target_tokens": "character",
    "hidden_size": 32,
    "embedding_size": 16,
    "dropout": 0.0,
    "epochs": 8,
    "batch_size": 16,
    "learning_rate": 5e-3,
    "threads": 1,
    "best_by": "exact_match",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Translation, Path]:
    run = tmp_path_factory.mktemp("reversal") / "run"
    task = Translation(TranslationOptions.from_mapping(OPTIONS))
    task.fit(SPLIT, run=run)
    return task, run


def test_it_learns_to_reverse_and_attends_to_the_copied_letter(trained: tuple[Translation, Path]) -> None:
    task, run = trained
    scores = task.evaluate(SPLIT.test)
    assert scores["exact_match"] > 0.9
    assert scores["character_error_rate"] < 0.03
    shown = Translation.load(run).attend(Pair("abcde"))
    assert ("".join(shown.source), shown.target) == ("abcde", [*"edcba", ""])
    np.testing.assert_allclose(shown.weights.sum(1), 1, atol=1e-6)
    assert (shown.weights[:-1].argmax(1) == np.arange(4, -1, -1)).mean() > 0.5


def test_a_run_shows_its_translations_and_attention(trained: tuple[Translation, Path]) -> None:
    _, run = trained
    header, *rows = (run / "translations.tsv").read_text("utf-8").splitlines()
    assert header == "source\treference\ttranslation"
    assert [row.split("\t")[:2] for row in rows] == [[pair.source, pair.target] for pair in SPLIT.test]
    drawn = (run / "attention.svg").read_text("utf-8")
    steps = sum(len(row.split("\t")[2]) + 1 for row in rows[:4])
    assert drawn.count("text-anchor='end'") == steps
    assert steps <= drawn.count("<title>") <= 6 * steps


def test_n_best_lists_are_sorted_and_greedy_has_one_entry(trained: tuple[Translation, Path]) -> None:
    task, _ = trained
    task.search = Search(beam=4)
    for hypotheses in task.predict(SPLIT.test[:20]):
        assert len(hypotheses) == 4
        assert sorted(hypotheses, key=lambda each: -each.score) == hypotheses
    task.search = Search(beam=1)
    assert all(len(hypotheses) == 1 for hypotheses in task.predict(SPLIT.test[:20]))


TINY = OPTIONS | {"hidden_size": 6, "embedding_size": 4, "epochs": 2, "batch_size": 8, "save_every": 0.0}


def test_resumed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    """This also holds if predicted tokens are read at random, as the step of the training determines."""
    split = Split(SPLIT.train[:40], SPLIT.dev[:8], SPLIT.test[:8])
    options = TranslationOptions.from_mapping(
        TINY | {"input_feeding": True, "teacher_forcing": 0.3, "teacher_schedule": "sigmoid", "dropout": 0.2}
    )
    result = Translation(options).fit(split, run=tmp_path / "whole")
    assert result["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    with pytest.raises(Interrupted):
        Translation(options).fit(split, run=tmp_path / "run", progress=CtrlC(7))
    Translation.resume(tmp_path / "run", split)
    assert same_files(tmp_path / "whole", tmp_path / "run", MODEL)
    assert same_files(tmp_path / "whole", tmp_path / "run", CHECKPOINT)


PAIRS = "a cat\t一隻貓\na dog\t一隻狗\ntwo cats\t兩隻貓\ntwo dogs\t兩隻狗\n" * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two files of pairs, and train a run on them that translates subwords to characters."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.tsv").write_text(PAIRS, "utf-8")
    for side, name in enumerate(("a.en", "a.zh")):
        (folder / name).write_text("".join(line.split("\t")[side] + "\n" for line in PAIRS.splitlines()), "utf-8")
    words = [f"--run={folder}/run", "--target-tokens=character", "--held-out=0.2", "--epochs=1", "--hidden-size=6"]
    assert main(["train", "translation", f"--source={folder}/a.en", f"--target={folder}/a.zh", *words]) == 0
    return folder


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run, pairs = f"{folder}/run", f"{folder}/pairs.tsv"
    assert main(["evaluate", run, pairs, "--json"]) == 0
    assert '"bleu": "nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:' in capsys.readouterr().out
    assert main(["evaluate", run, f"{folder}/a.en,{folder}/a.zh"]) == 0
    assert "bleu 0" in capsys.readouterr().out
    (folder / "text.txt").write_text("a cat\n\n\ntwo Ω dogs\nΩΩΩ\n", "utf-8")
    words = ["translate", run, f"{folder}/text.txt"]
    assert main([*words, f"--picture={folder}/attention.svg"]) == 0
    out, err = capsys.readouterr()
    assert [bool(line) for line in out.splitlines()][:3] == [bool(out.splitlines()[0]), False, False]
    assert out.count("\n") == 5
    assert "text.txt:5: the training data had none of this line's tokens, so its translation is a guess" in err
    assert (folder / "attention.svg").read_text("utf-8").startswith("<svg")
    assert main([*words, "--n-best=2", "--beam=2"]) == 0
    numbered = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line]
    assert [number for number, *_ in numbered] == ["1", "1", "4", "4", "5", "5"]
    assert all(float(score) < 0 for _, score, _ in numbered)
    assert main(["predict", run, f"{folder}/text.txt", f"--picture={folder}/first.svg"]) == 0
    assert (folder / "first.svg").read_text("utf-8").count("<title>") > 4


@pytest.mark.parametrize("line", ["77\ta cat\t1024\teine Katze", "a cat\teine Katze\tCC-BY 2.0\t5"])
def test_pairs_with_the_numbers_of_tatoeba_or_further_columns(tmp_path: Path, line: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{line}\n")
    (pair,) = read_pairs(tmp_path / "pairs.tsv")
    assert (pair.source, pair.target) == ("a cat", "eine Katze")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a\tb\nno tab here\n",
            r"bad.tsv:2: expected a sentence, a tab and its translation, got no tab; put one between",
        ),
        ("a\tb\n\tb\n", r"bad.tsv:2: the text before the tab is missing; add it, or remove the line"),
        ("a\tb\na\t \n", r"bad.tsv:2: the text after the tab is missing"),
        ("\n\n", r"bad.tsv: the file has only empty lines"),
    ],
)
def test_an_invalid_file_of_pairs_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.tsv").write_text(content)
    with pytest.raises(UserError, match=message):
        Translation(TranslationOptions(data=str(tmp_path / "bad.tsv"))).fit(run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_invalid_files_and_options_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert main([*words]) == 2
        return capsys.readouterr().err

    def train(first: str, second: str, *words: str) -> str:
        for name, content in (("b.en", first), ("b.zh", second)):
            (folder / name).write_text(content, "utf-8")
        run = f"--run={folder}/bad"
        return said("train", "translation", f"--source={folder}/b.en", f"--target={folder}/b.zh", run, *words)

    assert "b.zh: expected 2 lines, as many as " in train("a\nb\n", "c\n")
    assert "b.zh:2: the line is empty, and that of " in train("a\nb\n", "c\n\n")
    assert "pair to train on is longer than 1 tokens" in train("a b c\n", "c d e\n", "--longest=1", "--held-out=0")
    assert "source, target: expected both files, got one" in said("train", "translation", "--source=a.en")
    assert "joint: expected one kind of tokens for both sides" in said(
        "train", "translation", "--joint", "--source-tokens=word"
    )
    assert "beam: expected 1 or more, got 0" in said("translate", f"{folder}/run", f"{folder}/a.en", "--beam=0")
    assert "n_best: expected 1 to 5, the size of the beam" in said("translate", f"{folder}/run", "--n-best=9")
    assert "b.zh: expected 20 lines, as many as " in said("evaluate", f"{folder}/run", f"{folder}/a.en,{folder}/b.zh")
    (folder / "strange.txt").write_text("ΩΩΩ\n", "utf-8")
    assert "the training data had none of its tokens" in said("translate", f"{folder}/run", f"{folder}/strange.txt")
    assert not (folder / "bad").exists()
