"""Writes the page on the long-lag problems, its results as JSON, and its pictures."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from glassgate.claims import pictures
from glassgate.claims.comparison import GRADIENT_STEPS, Comparison, describe_starts, summarize
from glassgate.claims.exponents import exponent_texts
from glassgate.claims.page import figure, machine, page, save, table
from glassgate.claims.problems import PROBLEMS

NEGLIGIBLE = 1e-3
"""A gradient below this fraction of another one is negligible. The text of the claim says "a thousandth"."""
MIN_SOLVED = 0.8
"""The claim that a cell solves a problem holds if at least this fraction of trainings (one per seed) solve it."""


def write(
    comparison: Comparison, results: Sequence[dict[str, Any]], gradients: Sequence[dict[str, Any]], folder: Path
) -> list[Path]:
    """Write `compare.json`, the pictures and `compare.html`. Returns the files.

    Empty pictures are not written: the picture of solved problems if no problem is solved, and learning curves if no
    answer was correct. Pictures with these names from an earlier comparison are removed.
    """
    rows = summarize(results)
    claims = check_claims(rows, gradients)
    drawn = [pictures.gradient_flow(gradients, comparison.cells)]
    if rows_of_solved := [row for row in rows if row["problem"] in solved_problems(rows)]:
        drawn.append(pictures.success(rows_of_solved, comparison.cells))
    if any(accuracy > 0 for result in results for *_, accuracy in result["curve"]):
        drawn.append(pictures.learning(results, comparison.cells))
    if any(row["forget_bias"] is not None for row in rows):
        drawn.append(pictures.forget_bias(rows, gradients, comparison.sequences))
    content = {
        "machine": machine(),
        "settings": comparison.__dict__,
        "claims": claims,
        "unsolved": describe_unsolved(comparison, rows),
        "problems": rows,
        "gradients": list(gradients),
        "curves": [{k: r[k] for k in ("problem", "cell", "lag", "seed", "forget_bias", "curve")} for r in results],
    }
    for name in pictures.NAMES - {picture.name for picture in drawn}:
        (folder / f"{name}.svg").unlink(missing_ok=True)
    return save(folder, "compare", _html(comparison, rows, claims, gradients, drawn), content, drawn)


def solved_problems(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the problems that at least one training of a cell with default biases solved, at any lag."""
    return list(dict.fromkeys(row["problem"] for row in rows if row["solved"] and row["forget_bias"] is None))


def describe_unsolved(comparison: Comparison, rows: Sequence[dict[str, Any]]) -> str:
    """Return sentences about the problems that no cell solved; empty if there are none."""
    unsolved_problems = [problem for problem in comparison.problems if problem not in solved_problems(rows)]
    if not unsolved_problems:
        return ""
    fewest_wrong = [
        f"{PROBLEMS[problem].title} {min(wrong):,}"
        for problem in unsolved_problems
        if (wrong := [count for row in rows if row["problem"] == problem for count in row["wrong_of_2560"]])
    ]
    names = "any problem"
    if len(unsolved_problems) < len(comparison.problems):
        names = ", ".join(PROBLEMS[problem].title for problem in unsolved_problems)
    return (
        f"No cell solved {names} in {comparison.sequences:,} sequences. "
        f"Fewest wrong answers of 2,560: {'; '.join(fewest_wrong)}. "
        "A comparison needs a longer training (--sequences) or a shorter lag (--lags)."
    )


def check_claims(rows: Sequence[dict[str, Any]], gradients: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return claims of tutorials, each with its measurement and whether it holds.

    Claims about the adding problem are left out if no cell solves it, for example because the training is too short.
    """
    claims = []
    untrained = {row["cell"]: row for row in gradients if not row["trained"] and row["forget_bias"] is None}
    biased = [row for row in gradients if row["forget_bias"] is not None and row["forget_bias"] >= 3]
    if "rnn" in untrained and biased:
        largest_ratio = max(_fraction_left(untrained["rnn"]) / _fraction_left(row) for row in biased)
        claims.append(
            {
                "claim": f"Before training, the RNN's gradient over {GRADIENT_STEPS} steps is less than a thousandth "
                "of that of an LSTM with a forget bias of 3 or more",
                "measure": "remaining fraction of the RNN's gradient, divided by that of the LSTM",
                "value": largest_ratio,
                "bound": NEGLIGIBLE,
                "holds": largest_ratio < NEGLIGIBLE,
            }
        )
    for cell, solves in (("lstm", True), ("gru", True), ("rnn", False)):
        row = next(
            (r for r in rows if (r["problem"], r["cell"], r["lag"], r["forget_bias"]) == ("adding", cell, 100, None)),
            None,
        )
        if row and "adding" in solved_problems(rows):
            fraction = row["solved"] / row["seeds"]
            claims.append(
                {
                    "claim": f"{cell.upper()} {'solves' if solves else 'does not solve'} adding at a lag of 100 steps",
                    "measure": f"number of seeds, of {row['seeds']}, in which it is solved",
                    "value": row["solved"],
                    "bound": MIN_SOLVED * row["seeds"] if solves else 0,
                    "holds": fraction >= MIN_SOLVED if solves else row["solved"] == 0,
                }
            )
    return claims


def _fraction_left(row: dict[str, Any]) -> float:
    """The norm of the output's gradient `GRADIENT_STEPS` steps before the last step, relative to that at the last."""
    return float(row["output"][-1] / row["output"][0])


def check_gradients(comparison: Comparison, gradients: Sequence[dict[str, Any]]) -> None:
    """Draw what `write` draws of the gradients, so that an error is raised before the trainings and not after them."""
    pictures.gradient_flow(gradients, comparison.cells)
    check_claims([], gradients)
    _exponents_table(gradients)


def _html(
    comparison: Comparison,
    rows: Sequence[dict[str, Any]],
    claims: Sequence[dict[str, Any]],
    gradients: Sequence[dict[str, Any]],
    drawn: Sequence[pictures.Picture],
) -> str:
    by_name = {picture.name: picture for picture in drawn}
    findings = [
        f"{claim['claim']}: {'yes' if claim['holds'] else 'no'} ({claim['measure']}: {_number(claim['value'])})."
        for claim in claims
    ]
    if sentences := describe_unsolved(comparison, rows):
        findings.append(sentences)
    sections = [
        (
            "Reach of the gradient",
            figure(
                by_name["gradients"],
                "|dL/dh(t-k)| against k, relative to k = 0, averaged over 32 sequences of the adding problem. Left: "
                "before training, with the initial values of torch.nn, and the LSTM also with other forget biases. "
                "Right: after 6,400 sequences. Dashed: the part of the gradient through the gates that keep the state.",
            ),
        ),
    ]
    if "success" in by_name:
        caption = f"Number of seeds, of {comparison.seeds}, in which {_solved_condition()}."
        sections.append(("Solved problems", figure(by_name["success"], caption)))
    if "learning" in by_name:
        caption = "Fraction of correct answers. A thin line is one seed, and a thick line is the median."
        sections.append(("Learning curves", figure(by_name["learning"], caption)))
    if "forget-bias" in by_name:
        sections.append(
            (
                "Effect of the forget bias",
                figure(
                    by_name["forget-bias"],
                    "Above: the number of sequences until the LSTM solves adding, by the initial bias of its forget "
                    "gates. The bias of the input gates is 0, or minus that of the forget gates. This panel is left "
                    "out if no training solved adding. Below: the fraction of the state that the forget gates keep "
                    "over 100 steps before training.",
                ),
            )
        )
    sections += [
        ("Growth of small differences", _exponents_table(gradients)),
        ("All figures", _results_table(rows)),
        ("Method", _method(comparison)),
    ]
    return page(
        "Which cell remembers?",
        f"{', '.join(comparison.cells)}: layers of at most {comparison.parameters:,} parameters on the long-lag "
        "problems of Hochreiter and Schmidhuber (1997), trained in the same way.",
        findings,
        sections,
    )


def _exponents_table(gradients: Sequence[dict[str, Any]]) -> str:
    """The largest Lyapunov exponent of each network before and, if it is trained, during and after training."""
    longest = max((row["lyapunov"] for row in gradients), key=len)
    head = ["network", *(f"after {e.get('sequences', 0):,} sequences" for e in longest)]
    table_rows = []
    for row in gradients:
        texts = exponent_texts(row)
        table_rows.append([row["label"], *texts, *["-"] * (len(longest) - len(texts))])
    return table(
        "Largest Lyapunov exponent in nats per step, with its 95 % interval over eight sequences of the adding "
        "problem. Below 0, a small difference of states decays: at -0.1, it falls to a thousandth in 69 steps. "
        "Above 0, it grows.",
        head,
        table_rows,
    )


def _solved_condition() -> str:
    return "a training answered 2,000 sequences in a row correctly"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2g}"


def _results_table(rows: Sequence[dict[str, Any]]) -> str:
    head = [
        "problem",
        "lag",
        "cell",
        "units",
        "parameters",
        "solved",
        "sequences until solved (median)",
        "in the paper",
        "wrong of 2,560",
        "ms per update",
        "MB kept",
    ]
    table_rows = []
    for row in rows:
        cell = row["cell"] + _initial_biases(row)
        median, reported = row["median_sequences_until_solved"], row["reported"]
        table_rows.append(
            [
                PROBLEMS[row["problem"]].title,
                str(row["lag"] or "-"),
                cell,
                str(row["units"]),
                f"{row['recurrent_parameters']:,}",
                f"{row['solved']} of {row['seeds']}",
                f"{median:,.0f}" if median else "-",
                f"{reported:,} ({row['reported_in']})" if reported else "-",
                " ".join(f"{wrong:,}" for wrong in row["wrong_of_2560"]),
                f"{row['milliseconds_per_update']:.1f}",
                f"{row['kept_megabytes']:.1f}",
            ]
        )
    return table(
        "An update is a batch of 32 sequences. Times are processor times. MB kept: the memory of an update for its "
        "backward pass.",
        head,
        table_rows,
    )


def _initial_biases(row: dict[str, Any]) -> str:
    """The initial biases of a training as text; empty for the default, `gg.init.long_memory`."""
    if row["forget_bias"] is None:
        return ""
    return f", forget bias {row['forget_bias']:g}" + (f", input {-row['forget_bias']:g}" if row["closed"] else "")


def _method(comparison: Comparison) -> str:
    return (
        "<p>Each network has one recurrent layer and a linear output layer. Training uses Adam with a learning rate of "
        "0.01 that decays to zero along a cosine, gradients clipped at 1.0, batches of 32, at most "
        f"{comparison.sequences:,} sequences, float32, and one thread. Without a given forget bias, a cell starts from "
        "<code>gg.init.long_memory(lag)</code>: Xavier input weights, orthogonal recurrent weights and, for gates that "
        "keep the state, biases drawn as in Tallec and Ollivier (2018). "
        f"{escape(' '.join(describe_starts(comparison)))} A problem counts as solved when "
        f"{_solved_condition()}. For multiplication, 12 of them may be wrong. A number must be within 0.04 of its "
        "target. In a class, every output must be within 0.3 of 0 or 1. A training stops after half of its sequences "
        "if fewer than half of its answers are correct and its loss did not fall in the second quarter. The networks "
        "of the paper are smaller (93 weights for adding) and learn from one sequence at a time.</p>"
    )
