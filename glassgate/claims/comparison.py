"""Runs all trials of a comparison in parallel processes, and stores the result of each trial in a file.

A trial is one training of a cell on a problem (`claims.trial`).
"""

import json
import signal
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import glassgate as gg
from glassgate.claims.cells import cell_of, hidden_size
from glassgate.claims.exponents import lyapunov_exponent
from glassgate.claims.gradients import gradient_norms
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import BATCH_SIZE, VERSION, Network, Trial, initial_network, is_result_of, start, train
from glassgate.tasks.runs import write_json
from glassgate.tasks.training.signals import end_with_parent

FORGET_BIASES = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
GRADIENT_STEPS = 100
"""Gradients are measured over this number of steps back in time."""
GRADIENT_PROBLEM, GRADIENT_SEQUENCES = "adding", 6_400
"""The problem and the number of sequences of the short training after which gradients are measured."""
EXPONENT_PARTS = 2
"""The number of equal parts of the short training. The Lyapunov exponent is measured after each part."""
_GROUPED_BY = ("problem", "cell", "lag", "forget_bias", "closed")
Report = Callable[[Trial, dict[str, Any]], None]


@dataclass(frozen=True)
class Comparison:
    """The settings of a comparison.

    Attributes:
        cells, problems: the names of cells and problems.
        lags: the numbers of steps between inputs and the outputs that depend on them.
        seeds: the number of seeds.
        sequences: the maximum number of sequences per training.
        parameters: the maximum number of parameters of a recurrent layer.
        biases: the initial forget biases of additional trials of the LSTM on the adding problem.
        bias_seeds: the number of seeds for each forget bias.
    """

    cells: tuple[str, ...]
    problems: tuple[str, ...]
    lags: tuple[int, ...]
    seeds: int
    sequences: int
    parameters: int
    biases: tuple[float, ...] = FORGET_BIASES
    bias_seeds: int = 5

    @property
    def trials(self) -> list[Trial]:
        """All trials, sorted by seed, then by lag, so that each setting soon has a result for its first seed."""
        trials = [
            Trial(problem, cell, lag if PROBLEMS[problem].has_free_lag else 0, seed, self.sequences, self.parameters)
            for seed in range(self.seeds)
            for problem in self.problems
            for cell in self.cells
            for lag in (self.lags if PROBLEMS[problem].has_free_lag else (0,))
        ]
        lag = min(self.lags, key=lambda lag: abs(lag - 100))
        biases = self.biases if "lstm" in self.cells and "adding" in self.problems else ()
        trials += [
            Trial("adding", "lstm", lag, seed, self.sequences, self.parameters, bias, closed)
            for seed in range(self.bias_seeds)
            for bias in biases
            for closed in (False, True)
        ]
        return sorted(dict.fromkeys(trials), key=lambda trial: (trial.seed, trial.lag))


def describe_starts(comparison: Comparison) -> list[str]:
    """Return a sentence for each cell that does not start from `gg.init.long_memory`."""
    sentences = []
    features = PROBLEMS[comparison.problems[0]].features
    for name in comparison.cells:
        cell = cell_of(name)
        scheme, reason = start(cell, hidden_size(cell, features, comparison.parameters), max(comparison.lags))
        if reason:
            sentences.append(f"{name} starts from gg.init.{scheme}, because {reason}.")
    return sentences


def run(trials: Sequence[Trial], folder: Path, processes: int, report: Report) -> list[dict[str, Any]]:
    """Run the trials that have no result in `folder`, and return the results of all trials.

    The process that trains stores each result as soon as it is complete.

    Args:
        trials: the trials.
        folder: the folder of the results.
        processes: the number of parallel processes, with one thread each.
        report: called with each trial and its result, also for results that already are in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[Trial, dict[str, Any]] = {}
    for trial in trials:
        stored = _read(folder / f"{trial.file_name}.json")
        if is_result_of(trial, stored):
            results[trial] = stored
            report(trial, stored)
    remaining = [trial for trial in trials if trial not in results]
    if remaining:
        with ProcessPoolExecutor(min(processes, len(remaining)), get_context("spawn"), _initialise_worker) as pool:
            futures = {pool.submit(_train_and_store, trial, folder): trial for trial in remaining}
            try:
                for future in as_completed(futures):
                    trial = futures[future]
                    results[trial] = future.result()
                    report(trial, results[trial])
            except BaseException:
                for process in list(pool._processes.values()):
                    process.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [results[trial] for trial in trials]


def _train_and_store(trial: Trial, folder: Path) -> dict[str, Any]:
    result = train(trial)
    write_json(folder / f"{trial.file_name}.json", result)
    return result


def _read(file: Path) -> Any:
    """The content of a JSON file; None if the file is missing or damaged."""
    with suppress(OSError, ValueError):
        return json.loads(file.read_text("utf-8"))
    return None


def _initialise_worker() -> None:
    """Let a process ignore Ctrl-C, which the parent handles, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def measure_gradients(comparison: Comparison, folder: Path) -> list[dict[str, Any]]:
    """Measure gradient norms and Lyapunov exponents. Returns one row per network.

    The networks are: each cell with the initial values of torch.nn, each cell after a short training, and the untrained
    LSTM with each forget bias. Each row is stored in `folder` as soon as it is measured, and read if it is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sequences = min(GRADIENT_SEQUENCES, comparison.sequences)
    trials = [
        Trial(GRADIENT_PROBLEM, name, GRADIENT_STEPS, 0, sequences if is_trained else 0, comparison.parameters)
        for name in comparison.cells
        for is_trained in (False, True)
    ]
    biases = comparison.biases if "lstm" in comparison.cells else ()
    trials += [
        Trial(GRADIENT_PROBLEM, "lstm", GRADIENT_STEPS, 0, 0, comparison.parameters, float(bias)) for bias in biases
    ]
    rows = []
    for trial in trials:
        settings, file = {"version": VERSION} | asdict(trial), folder / f"{trial.file_name}.json"
        stored = _read(file)
        if not isinstance(stored, dict) or stored.get("settings") != settings or "row" not in stored:
            stored = {"settings": settings, "row": _gradient_row(trial)}
            write_json(file, stored)
        rows.append(stored["row"])
    return rows


def _gradient_row(trial: Trial) -> dict[str, Any]:
    """Measure a network: trained if the trial has sequences, else with the initial values of torch.nn."""
    problem, cell, bias = PROBLEMS[trial.problem], cell_of(trial.cell), trial.forget_bias
    if trial.sequences:
        network, exponents = _train_briefly(trial)
    else:
        torch.manual_seed(trial.seed)
        network = Network(cell, problem, hidden_size(cell, problem.features, trial.parameters))
        if bias is not None:
            gg.init.gate_bias(f=bias)(network.layer)
        exponents = [_exponent(network)]
    norms = gradient_norms(network, trial.problem, GRADIENT_STEPS, seed=0)
    suffix = ", trained" if trial.sequences else ""
    return {
        "label": trial.cell + suffix if bias is None else f"{trial.cell}, forget bias {bias:g}",
        "lyapunov": exponents,
        "cell": trial.cell,
        "trained": bool(trial.sequences),
        "forget_bias": bias,
        "output": norms[cell.state[0]],
        "states": {state: norms[state] for state in cell.state},
        "own_path": norms.get("own_path"),
    }


def _train_briefly(trial: Trial) -> tuple[Network, list[dict[str, float]]]:
    """Train a network. Returns the network, and its Lyapunov exponents before, during and after the training."""
    network, problem = initial_network(trial), PROBLEMS[trial.problem]
    generator = torch.Generator().manual_seed(trial.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=trial.learning_rate)
    updates = trial.sequences // BATCH_SIZE
    measured_after = {round(updates * k / EXPONENT_PARTS) for k in range(1, EXPONENT_PARTS + 1)}
    exponents = [{"sequences": 0} | _exponent(network)]
    for update in range(1, updates + 1):
        network.update(problem, problem.make(trial.lag, BATCH_SIZE, generator), optimizer)
        if update in measured_after:
            exponents.append({"sequences": BATCH_SIZE * update} | _exponent(network))
    return network, exponents


def _exponent(network: Network) -> dict[str, float]:
    return lyapunov_exponent(network, GRADIENT_PROBLEM, GRADIENT_STEPS, seed=0)


def summarize(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each problem, cell, lag, forget bias and `Trial.closed`, with the results of all seeds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in results:
        groups.setdefault(tuple(row[name] for name in _GROUPED_BY), []).append(row)
    rows = []
    for (problem, cell, lag, bias, closed), runs in groups.items():
        solved = sorted(run["sequences_until_solved"] for run in runs if run["sequences_until_solved"] is not None)
        rows.append(
            {
                "problem": problem,
                "cell": cell,
                "lag": lag,
                "forget_bias": bias,
                "closed": closed,
                "seeds": len(runs),
                "solved": len(solved),
                "sequences_until_solved": solved,
                "median_sequences_until_solved": statistics.median(solved) if solved else None,
                "wrong_of_2560": sorted(run["wrong_of_2560"] for run in runs),
                "units": runs[0]["units"],
                "recurrent_parameters": runs[0]["recurrent_parameters"],
                "milliseconds_per_update": statistics.median(run["milliseconds_per_update"] for run in runs),
                "kept_megabytes": max(run["kept_megabytes"] for run in runs),
                "reported": PROBLEMS[problem].reported[1].get(lag) if cell == "lstm" and bias is None else None,
                "reported_in": PROBLEMS[problem].reported[0] or None,
            }
        )
    return rows
