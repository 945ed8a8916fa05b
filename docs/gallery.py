"""`python docs/gallery.py` measures every built-in cell and writes build/gallery.html: a page with all cells.

The page shows the diagram, equations, step and figures of each cell. The figures are kept in docs/cells/gallery.json.
`python docs/gallery.py LTC LMU` measures only these cells, and `--page` none. The documentation site shows the page.
"""

import html
import inspect
import json
import statistics
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.claims.problems import PROBLEMS, Batch, Problem
from glassgate.cli.cells import GROUPS

FIGURES = Path(__file__).with_name("cells") / "gallery.json"
PAGE = Path(__file__).parents[1] / "build/gallery.html"
SIZE, STEPS, ROWS, ROUNDS = 128, 50, 16, 8  # of the calls whose time is measured
PARAMETERS, UPDATES, BATCH, RATE, SEEDS = 5_000, 150, 32, 1e-2, 3


class Task(NamedTuple):
    """One of the two problems: its lag in steps, the title of its error, and the error without any memory."""

    lag: int
    error: str
    chance: str


TASKS = {
    "adding": Task(10, "adding: mean squared error", "0.042"),
    "order": Task(20, "order of two symbols: fraction of wrong answers", "0.75"),
}


def cells() -> dict[str, type[gg.Cell]]:
    """Return all built-in cells by name."""
    return {name: cell for group in GROUPS.values() for name, cell in group.items()}


def with_times(cell: gg.Cell, x: Tensor) -> Tensor:
    """Append the columns that a cell reads besides the features: a mask of ones, and times of one step."""
    columns = [x]
    for name, axes in list(cell.inputs.items())[1:]:
        width = x.shape[-1] if axes else 1
        value = torch.zeros(()) if name == "d" else torch.ones(())
        columns.append(value.expand(*x.shape[:-1], width))
    if type(cell) is gg.cells.CLASSIC["PhasedLSTM"]:
        columns[1] = torch.arange(len(x), dtype=x.dtype)[:, None, None].expand(*x.shape[:-1], 1)
    return torch.cat(columns, -1)


def layer_of(cell: gg.Cell, features: int, units: int) -> gg.Recurrent:
    """Return a layer of a cell that reads this number of features."""
    return gg.Recurrent(cell, with_times(cell, torch.zeros(1, 1, features)).shape[-1], units)


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in module.parameters())


def training_step(layer: gg.Recurrent, x: Tensor) -> float:
    """Return the processor time of one training step in seconds."""
    start = time.process_time()
    layer(x)[0].sum().backward()
    return time.process_time() - start


def relative_speed(cell: gg.Cell, reference: gg.Recurrent) -> tuple[float, str]:
    """Return the least time of the LSTM divided by that of the cell in interleaved steps, and the cell's engine."""
    plain = torch.randn(STEPS, ROWS, SIZE)
    layer, x = layer_of(cell, SIZE, SIZE), with_times(cell, plain)
    engine = gg.explain(layer, x).engine
    times = [(training_step(reference, plain), training_step(layer, x)) for _ in range(ROUNDS + 1)][1:]
    return min(a for a, _ in times) / min(b for _, b in times), engine


class Network(nn.Module):
    """One layer of the cell and a linear layer at the end of each sequence."""

    def __init__(self, cell: gg.Cell, problem: Problem, units: int) -> None:
        super().__init__()
        self.layer = layer_of(cell, problem.features, units)
        self.answer = nn.Linear(units, problem.outputs)

    def forward(self, batch: Batch) -> Tensor:
        x = with_times(self.layer.cell, batch.inputs)
        output, _ = self.layer(x, lengths=batch.lengths)
        return self.answer(output[batch.lengths - 1, torch.arange(output.shape[1])])


def units_for(cell: gg.Cell, problem: Problem) -> int:
    """Return the largest number of units with at most PARAMETERS parameters, or the smallest possible."""
    best = 2 * cell.heads
    for units in range(best, 400, 2 * cell.heads):
        if count(Network(cell, problem, units)) > PARAMETERS:
            break
        best = units
    return best


def error(cell: gg.Cell, name: str, seed: int) -> float:
    """Train a network. Return its error on new sequences."""
    problem = PROBLEMS[name]
    units = units_for(cell, problem)
    torch.manual_seed(seed)
    network, generator = Network(cell, problem, units), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    for _ in range(UPDATES):
        batch = problem.make(TASKS[name].lag, BATCH, generator)
        optimizer.zero_grad()
        problem.loss(network(batch), batch).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    batch = problem.make(TASKS[name].lag, 2_000, torch.Generator().manual_seed(1_000 + seed))
    with torch.no_grad():
        answers = network(batch)
    if problem.outputs == 1:
        return problem.loss(answers, batch).item()
    return (answers.argmax(-1) != batch.targets).double().mean().item()


def measure(name: str, reference: gg.Recurrent) -> dict[str, Any]:
    """Return the figures of a cell."""
    build = cells()[name]
    speed, engine = relative_speed(build(), reference)
    figures: dict[str, Any] = {
        "parameters": count(layer_of(build(), SIZE, SIZE)),
        "speed": speed,
        "engine": engine,
    }
    for task in TASKS:
        figures[task] = [error(build(), task, seed) for seed in range(SEEDS)]
    return figures


def step_of(cell: type[gg.Cell]) -> str:
    """Return the source of the step."""
    return textwrap.dedent(inspect.getsource(cell.step)).strip()


def body(figures: dict[str, dict[str, Any]]) -> str:
    """Return the page without its head."""
    lstm = figures["LSTM"]
    parts = [
        f"<p>For each cell: the number of parameters with {SIZE} inputs and {SIZE} units, and the speed of a training "
        f"step with {STEPS} steps of {ROWS} rows, as a multiple of the LSTM's: the least processor times of {ROUNDS} "
        "interleaved steps on one thread, while other programs used the machine. The errors are those of networks "
        f"with at most {PARAMETERS:,} parameters after {UPDATES} updates with {BATCH} new sequences each, at a "
        f"learning rate of {RATE} and the default initial values: the mean and the range of {SEEDS} seeds. The lags "
        "are "
        + " and ".join(f"{each.lag} steps" for each in TASKS.values())
        + ". More training, other initial values or other learning rates would change the order of the cells. Without "
        "memory, the errors are " + ", and ".join(f"{each.chance} ({each.error})" for each in TASKS.values()) + ".</p>",
        "<table><thead><tr><th>cell</th><th>lines</th><th>parameters</th><th>of the LSTM's</th><th>speed</th>"
        "<th>engine</th>" + "".join(f"<th>{each.error}</th>" for each in TASKS.values()) + "</tr></thead><tbody>",
    ]
    for name, cell in cells().items():
        own = figures[name]
        errors = "".join(
            f"<td>{statistics.mean(own[task]):.2g} ({min(own[task]):.2g} to {max(own[task]):.2g})</td>"
            for task in TASKS
        )
        parts.append(
            f'<tr><td><a href="#{name}">{name}</a></td><td>{step_of(cell).count(chr(10))}</td>'
            f"<td>{own['parameters']:,}</td><td>{own['parameters'] / lstm['parameters']:.2f}</td>"
            f"<td>{own['speed']:.2g}</td><td>{own['engine']}</td>{errors}</tr>"
        )
    parts.append("</tbody></table>")
    for title, group in GROUPS.items():
        parts.append(f"<h2>{title}</h2>")
        for name, cell in group.items():
            text, step = (html.escape(each) for each in (inspect.getdoc(cell) or "", step_of(cell)))
            parts += [
                f'<h3 id="{name}">{name}</h3>',
                str(gg.draw(cell())),
                f"<pre>{text}</pre>",
                f"<pre><code>{step}</code></pre>",
            ]
    return "\n".join(parts)


def main(arguments: list[str]) -> None:
    """Measure cells, and write the page."""
    figures = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    torch.set_num_threads(1)
    reference = gg.LSTM(SIZE, SIZE)
    for name in [] if arguments == ["--page"] else arguments or [*cells()]:
        figures[name] = measure(name, reference)
        print(name, figures[name], flush=True)
        FIGURES.write_text(
            json.dumps({each: figures[each] for each in cells() if each in figures}, indent=1) + "\n", "utf-8"
        )
    if missing := [name for name in cells() if name not in figures]:
        print("not measured yet:", *missing)
        return
    PAGE.parent.mkdir(exist_ok=True)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Cells</title><h1>A gallery of cells</h1>'
    PAGE.write_text(head + body(figures), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
