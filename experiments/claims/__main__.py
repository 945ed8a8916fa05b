"""`python -m experiments.claims FOLDER` (`make claims`) writes the results in docs/why-lstm.md and its Chinese version.

FOLDER contains the output of `glassgate compare --quick`, `compare directions` and `compare products`. FOLDER/full
contains the output of `glassgate compare`. If FOLDER/full is missing, its table and its picture stay as is.
"""

import json
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docs.site.chinese import translate
from experiments.common.environment import ROOT
from experiments.common.page import replace_parts, table

DOCS = ROOT / "docs"
PAGES = ("why-lstm.md", "why-lstm.zh-CN.md")
PICTURES = ("gradients", "learning", "forget-bias", "taggers-reach", "language-models", "models-reach", "variants")
Content = dict[str, dict[str, Any]]
"""The contents of the JSON files, by the name of the comparison."""


def main(folder: Path, docs: Path = DOCS) -> None:
    """Copy the pictures, and replace the text between the comments of both pages."""
    content = {
        name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("compare", "directions", "products")
    }
    pictures, parts = [folder / f"{name}.svg" for name in PICTURES], PARTS
    if (folder / "full" / "compare.json").exists():
        content["full"] = json.loads((folder / "full" / "compare.json").read_text("utf-8"))
        pictures.append(folder / "full" / "success.svg")
        parts = {**PARTS, "every": every}
    (docs / "claims").mkdir(exist_ok=True)
    for picture in pictures:
        if picture.exists():
            shutil.copyfile(picture, docs / "claims" / picture.name)
        else:
            print(f"{picture}: not drawn, because no problem was solved; the page keeps its picture")
    for language, page in enumerate(PAGES):
        replace_parts(docs / page, {name: part(content, language) for name, part in parts.items()}, "make claims")


def solved(content: Content, language: int) -> str:
    """Return how many seeds solve each problem, and the median number of sequences until the solution."""
    head = (
        ("problem", "lag", "cell", "seeds that solve it", "sequences until solved (median)", "in the paper (LSTM)"),
        ("问题", "间隔", "单元", "解出的种子", "解出所需序列数（中位数）", "论文（LSTM）"),
    )[language]
    rows = []
    for row in content["compare"]["problems"]:
        if row["forget_bias"] is None:
            median, paper = row["median_sequences_until_solved"], row["reported"]
            sequences = f"{median:,.0f}" if median else "-"
            rows.append(
                [
                    row["problem"],
                    str(row["lag"] or "-"),
                    row["cell"],
                    f"{row['solved']} / {row['seeds']}",
                    sequences,
                    f"{paper:,} ({row['reported_in']})" if paper else "-",
                ]
            )
    return table(head, rows)


def every(content: Content, language: int) -> str:
    """Return how many seeds solve each problem at each lag, with the median and the paper's numbers of sequences."""
    rows = [row for row in content["full"]["problems"] if row["forget_bias"] is None]
    lags, own = sorted({row["lag"] for row in rows if row["lag"]}), ("its own", "固定")[language]
    head = [("problem", "问题")[language], ("cell", "单元")[language], *map(str, lags)]
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        row_of = {(row["cell"], row["lag"]): row for row in rows if row["problem"] == problem}
        for cell in dict.fromkeys(cell for cell, _ in row_of):
            texts = {lag: _seeds(row) for (name, lag), row in row_of.items() if name == cell}
            lines.append([problem, cell, *_by_lag(texts, lags, own)])
        source = next(row["reported_in"] for row in row_of.values())
        if source:
            texts = {lag: f"{row['reported']:,}" for (_, lag), row in row_of.items() if row["reported"]}
            lines.append(
                [problem, ("LSTM of 1997", "1997 年的 LSTM")[language] + f", {source}", *_by_lag(texts, lags, own)]
            )
    return table(head, lines)


def _seeds(row: dict[str, Any]) -> str:
    median = row["median_sequences_until_solved"]
    return f"{row['solved']}/{row['seeds']}" + (f", {median:,.0f}" if median else "")


def _by_lag(texts: dict[int, str], lags: Sequence[int], own: str) -> list[str]:
    """Return one table cell per lag. A problem with a fixed lag uses the first cell."""
    if 0 in texts:
        return [f"{texts[0]} ({own})", *[""] * (len(lags) - 1)]
    return [texts.get(lag, "") for lag in lags]


def gradients(content: Content, language: int) -> str:
    """Return the fraction of the gradient that remains a hundred steps back, for each network."""
    head = (("cell", "gradient left 100 steps back"), ("单元", "100 步之前剩余的梯度"))[language]
    rows = [(row["label"], row["output"]) for row in content["compare"]["gradients"]]
    return table(head, [[_words(label, language), f"{norms[-1] / norms[0]:.1e}"] for label, norms in rows])


def directions(content: Content, language: int) -> str:
    """Return the fraction of correct labels for each reading direction, and the losses of the language models."""
    head = (
        ("reads", "labels correct", "as a language model, nats per character"),
        ("阅读方向", "标签正确率", "作语言模型，每字符 nats"),
    )[language]
    loss = {row["reads"]: f"{row['loss'][-1]:.3f}" for row in content["directions"]["language_models"]}
    rows = [(row["reads"], statistics.mean(row["accuracy"])) for row in content["directions"]["taggers"]]
    return table(head, [[_words(reads, language), f"{mean:.2%}", loss.get(reads, "-")] for reads, mean in rows])


def generated(content: Content, language: int) -> str:
    """Return the texts that the language models generated."""
    names = ({"forward": "One direction:", "both": "Two directions:"}, {"forward": "单向：", "both": "双向："})[
        language
    ]
    rows = content["directions"]["language_models"]
    return "".join(f"{names[row['reads']]}\n\n```\n{row['generated']}\n```\n\n" for row in rows)


def products(content: Content, language: int) -> str:
    """Return the time per step of each variant."""
    head = (
        ("variant", "N", "H", "forward, us per step", "training, us per step", "error against float64"),
        ("实现", "N", "H", "前向，每步微秒", "训练，每步微秒", "与 float64 的误差"),
    )[language]
    return table(
        head,
        [
            [
                _words(row["variant"], language),
                str(row["N"]),
                str(row["H"]),
                f"{row['forward']:.1f}",
                f"{row['training']:.1f}" if row["training"] else "-",
                f"{row['error']:.0e}",
            ]
            for row in content["products"]["rows"]
        ],
    )


def _words(text: str, language: int) -> str:
    return translate(text) if language else text


def machine(content: Content, language: int) -> str:
    """Return a sentence with the processor and the version of PyTorch."""
    environment = content["products"]["machine"]
    if language:
        return f"测量于 {environment['processor']}，PyTorch {environment['torch']}，最后一节的时间用一个线程。\n"
    return (
        f"Measured on {environment['processor']} with PyTorch {environment['torch']}, the last section on one thread.\n"
    )


PARTS: dict[str, Callable[[Content, int], str]] = {
    part.__name__: part for part in (gradients, solved, directions, generated, products, machine)
}
"""Functions that return the text of each part of a page. `language` is 0 for English and 1 for Chinese."""

if __name__ == "__main__":
    main(Path(sys.argv[1]))
