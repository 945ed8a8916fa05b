"""Writes the short table of results in both READMEs, between two comments."""

import statistics
from collections.abc import Iterable
from pathlib import Path

from results.cases import CASES, Case, Reported
from results.report import OURS, PLAIN, Pairs, format_scores, speedups, values
from results.store import Store

BEGIN, END = "<!-- table of results, written by make results -->\n", "<!-- end of the table -->"

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


def write(store: Store, root: Path) -> None:
    """Replace the text between the two comments of each README."""
    for page in HEADINGS:
        before, rest = (root / page).read_text("utf-8").split(BEGIN)
        after = rest.split(END)[1]
        (root / page).write_text(before + table(store, page) + after, "utf-8")


def table(store: Store, page: str) -> str:
    """Return the table of one README, with its comments."""
    language, headings = list(HEADINGS).index(page), HEADINGS[page]
    cases = [case for case in CASES if case.name in NAMES]
    paired = [(case, pairs) for case in cases if (pairs := store.pairs(case))]
    rows = [_row(NAMES[case.name][language], case, pairs, SPEEDUP_UNITS[page]) for case, pairs in paired]
    lines = [headings, ("---",) * len(headings), *rows]
    return BEGIN + "".join(f"| {' | '.join(line)} |\n" for line in lines) + END


def _row(name: str, case: Case, pairs: Pairs, speedup_unit: str) -> tuple[str, ...]:
    score = case.scores[0]
    unit = " %" if score.percent else ""
    ours, plain = (format_scores(score, values(score, side)) + unit for side in zip(*pairs, strict=True))
    others = [figure for figure in case.by_others if figure.score == score.key]
    speedup = f"{statistics.median(speedups(pairs)):.2f}{speedup_unit}"
    return name, ours, plain, _format_reported(others, unit), str(len(pairs)), speedup


def _format_reported(reported: Iterable[Reported], unit: str = "") -> str:
    """Return published figures as text, each with its source."""
    return "; ".join(f"{figure.value:g}{unit} ({figure.who})" for figure in reported) or "-"
