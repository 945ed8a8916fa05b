"""The data embedded in a report for its script and for tests: the numbers of a study as JSON, with arrays in base64."""

import base64
from typing import Any

import numpy as np

from glassgate.glass.findings import Finding, findings
from glassgate.glass.followers import best_followers
from glassgate.glass.heat_map import by_similarity
from glassgate.glass.places import Places, packed
from glassgate.glass.study import Direction, Relevances, Study

# The maximum size in bytes of recorded values in a page. Values have 32 bits if they fit, else 16, else 8. If even
# these do not fit, units are left out.
_BUDGET = 1_900_000
_SIGNIFICANT = 7
# Levels of a relevance on each side of zero.
_LEVELS = 127


def embedded(study: Study, runs: int = 1) -> tuple[dict[str, Any], str]:
    """The data of a study for a page with `runs` runs, and a sentence about reduced values, or an empty text."""
    values = sum(value.size for each in study.directions for value in each.values.values())
    wires = sum(value.size for each in study.directions for value in each.wires.values())
    sizes = {bits: (values * bits + wires * min(bits, 16)) // 8 for bits in (32, 16, 8)}
    bits = next((bits for bits, size in sizes.items() if size <= _BUDGET // runs), 8)
    fraction = min(1.0, _BUDGET / runs / max(sizes[bits], 1))
    note = ""
    if bits < 32:
        note = f"Values under the cursor are kept in {bits} bits, to 1/{2**bits - 1} of each gate's range."
    if fraction < 1:
        note += f" They are kept for {fraction:.0%} of the units: those that the page names, and those that vary most. "
        note += "Pictures and measures are of all units."
    all_findings = findings(study)
    data = {
        "starts": study.starts,
        "steps": [list(each.steps) for each in study.passages],
        "answers": [[[each.step, _choices(each.best), each.target] for each in p.answers] for p in study.passages],
        "parts": [_part(each, bits, fraction, named(study, all_findings, each)) for each in study.directions],
        "connections": [
            {
                "targets": each.targets,
                "shape": list(each.matrix.shape),
                "values": _array(each.matrix, 32),
                "attention": None if each.attention is None else _array(each.attention, 32),
            }
            for each in study.connections
        ],
        "series": any(each.series is not None for each in study.passages),
        "places": None if study.places is None else _places(study.places),
        "relevances": [_relevance(each) for each in study.relevances],
        "causes": [list(each) for each in study.causes],
        "windows": [list(each) for each in study.windows],
        "follows": [list(each) for each in best_followers(study)],
        "findings": [list(each) for each in all_findings],
        "thresholds": study.thresholds,
    }
    return _rounded(data), note.strip()


def named(study: Study, all_findings: list[Finding], direction: Direction) -> list[int]:
    """The units of a direction that the page names: in findings, in the ranking, and unit 0, which is shown first."""
    units = {each.unit[1] for each in all_findings if each.unit and each.unit[0] == direction.label}
    units |= {each.unit for each in best_followers(study) if each.direction == direction.label}
    return sorted(units | {0})


def array(packed: dict[str, Any]) -> np.ndarray:
    """Decode an array of a page into a flat array of numbers."""
    numbers = np.frombuffer(base64.b64decode(packed["b64"]), packed["type"])
    if packed["type"] == "<f4":
        return numbers
    return packed["low"] + numbers.astype(np.float64) * packed["spacing"]


def _choices(best: Any) -> list[list[Any]]:
    return [[name, chance] for name, chance in best]


def _places(places: Places) -> dict[str, Any]:
    """The states in 4 bits each."""
    parts = {}
    for label, values in places.states.items():
        levels, low, spacing = packed(values)
        measures = {"low": low, "spacing": spacing, "mean": places.mean[label], "deviation": places.deviation[label]}
        parts[label] = {
            **{name: each.tolist() for name, each in measures.items()},
            "levels": {"type": "|u1", "b64": _base64(levels)},
        }
    return {
        "parts": parts,
        "texts": [list(each) for each in places.texts],
        "numbers": list(places.numbers),
        "data": places.data,
    }


def _relevance(each: Relevances) -> dict[str, Any]:
    """The relevances of each answer as fractions of the largest one, in 8 bits; the sums are exact."""
    peaks = np.maximum(np.abs(each.matrix).max(1), 1e-30)
    levels = np.rint(each.matrix / peaks[:, None] * _LEVELS) + _LEVELS
    return {
        "targets": each.targets,
        "shape": list(each.matrix.shape),
        "values": {"type": "|u1", "low": -1.0, "spacing": 1 / _LEVELS, "b64": _base64(levels.astype(np.uint8))},
        "peaks": peaks.tolist(),
        "totals": each.matrix.sum(1).tolist(),
        "biases": each.biases.tolist(),
        "scores": each.scores.tolist(),
        "name": each.name,
    }


def _part(each: Direction, bits: int, fraction: float, named: list[int]) -> dict[str, Any]:
    output = each.values[each.states[0]]
    units = max(value.shape[1] for value in each.values.values())
    shown = list(range(units))
    if fraction < 1:
        varies = np.max([_padded(value.std(0), units) for value in each.values.values()], 0)
        varies[[unit for unit in named if unit < units]] = np.inf
        shown = sorted(np.argsort(-varies, kind="stable")[: max(len(named), int(units * fraction))].tolist())
    return {
        "label": each.label,
        "reverse": each.reverse,
        "cell": type(each.cell).__name__,
        "units": units,
        "shown": shown,
        "order": by_similarity(output),
        "kinds": each.kinds,
        "states": list(each.states),
        "values": {
            name: {"units": value.shape[1], **_array(value[:, _within(shown, value)], bits)}
            for name, value in each.values.items()
        },
        "wires": {
            name: {"units": v.shape[1], **_array(v[:, _within(shown, v)], min(bits, 16))}
            for name, v in each.wires.items()
        },
        "saturation": {name: [s.low.tolist(), s.high.tolist()] for name, s in each.saturation.items()},
        "half_life": {name: _finite(value) for name, value in each.half_life.items()},
        "memory": {name: {k: v.tolist() for k, v in memory._asdict().items()} for name, memory in each.memory.items()},
        "flow": {
            name: {
                "lags": flow.lags,
                "trained": flow.trained.tolist(),
                "initial": None if flow.initial is None else flow.initial.tolist(),
                "direct_path": None if flow.direct_path is None else flow.direct_path.tolist(),
            }
            for name, flow in each.flow.items()
        },
        "survival": None if each.dynamics is None else each.dynamics.course.tolist(),
    }


def _within(shown: list[int], values: np.ndarray) -> list[int]:
    """The columns of the shown units, or the only column."""
    return [unit for unit in shown if unit < values.shape[1]] if values.shape[1] > 1 else [0]


def _array(values: np.ndarray, bits: int) -> dict[str, Any]:
    if bits == 32:
        return {"type": "<f4", "b64": _base64(values.astype("<f4"))}
    low, high = float(values.min()), float(values.max())
    spacing = (high - low) / (2**bits - 1) or 1.0
    kind = "<u2" if bits == 16 else "|u1"
    return {
        "type": kind,
        "low": low,
        "spacing": spacing,
        "b64": _base64(np.rint((values - low) / spacing).astype(kind)),
    }


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, (0, size - len(values)))


def _finite(values: np.ndarray) -> list[float | None]:
    """Numbers, with None for infinity, which JSON cannot represent."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _rounded(data: Any) -> Any:
    """The data with numbers rounded to seven significant digits."""
    if isinstance(data, float):
        return float(f"{data:.{_SIGNIFICANT}g}")
    if isinstance(data, dict):
        return {name: value if name == "spacing" else _rounded(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(value) for value in data]
    return data
