"""Writes the short table of results in both READMEs, between two comments."""

import statistics
from collections.abc import Iterable
from pathlib import Path

from experiments.common.page import replace_parts, table
from experiments.quality.case import Case, Reported
from experiments.quality.cases import CASES
from experiments.quality.report import OURS, PLAIN, Pairs, format_scores, speedups, values
from experiments.quality.store import Results

NAME = "table of results"
"""The name of the table in the READMEs."""

HEADINGS = {
    "README.md": ("test data", OURS, PLAIN, "reported by others", "seeds", "training speedup"),
    "README.zh-CN.md": ("测试数据", OURS, PLAIN, "他人报告", "种子数", "训练速度之比"),
}
SPEEDUP_UNITS = {"README.md": "x", "README.zh-CN.md": " 倍"}
"""The unit of a speedup on each page."""
NAMES = {
    "ewt": ("UD English EWT, part of speech", "UD English EWT 词性"),
    "snips": ("SNIPS, slots (F1)", "SNIPS 槽位（F1）"),
    "vowels": ("Japanese vowels, 9 speakers", "日语元音，9 位说话人"),
    "chorales": ("JSB chorales, nats per step", "JSB 众赞歌，每步 nats"),
    "shakespeare": ("Tiny Shakespeare, nats per character", "Tiny Shakespeare，每字符 nats"),
    "tang-blanks": ("Tang poems, nats per missing character", "唐诗单字填空，每字 nats"),
    "tang-poems": ("Tang poems, nats per character", "唐诗，每字 nats"),
    "tatoeba-en-zh": ("Tatoeba, English to Chinese (BLEU)", "Tatoeba 英译中（BLEU）"),
    "tatoeba-zh-en": ("Tatoeba, Chinese to English (BLEU)", "Tatoeba 中译英（BLEU）"),
    "etth1-ot-24": ("ETTh1 oil temperature, 24 h ahead, MSE", "ETTh1 油温，提前 24 小时，MSE"),
    "snips-intents": ("SNIPS, intents", "SNIPS 意图"),
}


def write(store: Results, root: Path) -> None:
    """Replace the table of each README."""
    for page in HEADINGS:
        replace_parts(root / page, {NAME: table_of(store, page)}, "make results")


def table_of(store: Results, page: str) -> str:
    """Return the table of one README."""
    language = list(HEADINGS).index(page)
    paired = [(case, pairs) for case in CASES if case.name in NAMES and (pairs := store.pairs(case))]
    return table(HEADINGS[page], [_row(NAMES[case.name][language], case, pairs, page) for case, pairs in paired])


def _row(name: str, case: Case, pairs: Pairs, page: str) -> tuple[str, ...]:
    score = case.scores[0]
    unit = " %" if score.percent else ""
    ours, plain = (format_scores(score, values(score, side)) + unit for side in zip(*pairs, strict=True))
    others = [figure for figure in case.by_others if figure.score == score.key]
    speedup = f"{statistics.median(speedups(pairs)):.2f}{SPEEDUP_UNITS[page]}"
    return name, ours, plain, _format_reported(others, unit), str(len(pairs)), speedup


def _format_reported(reported: Iterable[Reported], unit: str = "") -> str:
    """Return published figures as text, each with its source."""
    return "; ".join(f"{figure.value:g}{unit} ({figure.who})" for figure in reported) or "-"
