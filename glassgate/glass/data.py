"""The data that a report embeds for its script: a study as JSON, with arrays in base64."""

import base64
from typing import Any

import numpy as np

from glassgate.glass.findings import Finding, findings
from glassgate.glass.followers import best_followers
from glassgate.glass.heat_map import similarity_order
from glassgate.glass.languages import say, sentences
from glassgate.glass.places import Places, pack_states
from glassgate.glass.study import Direction, Relevances, Study
from glassgate.glass.wording import percent

# The maximum size in bytes of recorded values in a page. Values have 32 bits if that fits, else 16, else 8. If 8 bits
# do not fit either, units are left out.
_BUDGET = 1_900_000
_SIGNIFICANT_DIGITS = 7
# The number of levels of a relevance on each side of zero.
_LEVELS = 127


def page_data(study: Study, runs: int = 1) -> tuple[dict[str, Any], str]:
    """The data of a study, and a note. The note is empty unless values have fewer than 32 bits or units are left out.

    Args:
        study: the study.
        runs: the number of runs on the page.
    """
    values = sum(value.size for each in study.directions for value in each.values.values())
    wires = sum(value.size for each in study.directions for value in each.wires.values())
    sizes = {bits: (values * bits + wires * min(bits, 16)) // 8 for bits in (32, 16, 8)}
    bits = next((bits for bits, size in sizes.items() if size <= _BUDGET // runs), 8)
    fraction = min(1.0, _BUDGET / runs / max(sizes[bits], 1))
    note = ""
    if bits < 32:
        note = say("page.rounded_values", bits=bits, levels=2**bits - 1)
    if fraction < 1:
        note = sentences(note, say("page.fewer_units", percent=percent(fraction)))
    all_findings = findings(study)
    data = {
        "starts": study.starts,
        "steps": [list(each.steps) for each in study.passages],
        "answers": [[[each.step, each.best, each.target] for each in p.answers] for p in study.passages],
        "parts": [_part(each, bits, fraction, named_units(study, all_findings, each)) for each in study.directions],
        "connections": [
            {
                "targets": each.targets,
                "shape": list(each.matrix.shape),
                "values": _encode_array(each.matrix, 32),
                "attention": None if each.attention is None else _encode_array(each.attention, 32),
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
    return _round(data), note


def named_units(study: Study, all_findings: list[Finding], direction: Direction) -> list[int]:
    """The units of a direction that a page may name: in the findings, in the ranking of followers, and unit 0."""
    units = {each.unit[1] for each in all_findings if each.unit and each.unit[0] == direction.label}
    units |= {each.unit for each in best_followers(study) if each.direction == direction.label}
    return sorted(units | {0})


def decode_array(packed: dict[str, Any]) -> np.ndarray:
    """Decode an array of a page into a flat array."""
    numbers = np.frombuffer(base64.b64decode(packed["b64"]), packed["type"])
    if packed["type"] == "<f4":
        return numbers
    return packed["low"] + numbers.astype(np.float64) * packed["spacing"]


def _places(places: Places) -> dict[str, Any]:
    """The content of `places`, with the states in 4 bits each."""
    parts = {}
    for label, values in places.states.items():
        levels, low, spacing = pack_states(values)
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
    """The relevances of each answer as fractions of the largest one, in 8 bits. The sums precede this rounding."""
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
        varies = np.max([_pad(value.std(0), units) for value in each.values.values()], 0)
        varies[[unit for unit in named if unit < units]] = np.inf
        shown = sorted(np.argsort(-varies, kind="stable")[: max(len(named), int(units * fraction))].tolist())
    return {
        "label": each.label,
        "reverse": each.reverse,
        "cell": type(each.cell).__name__,
        "units": units,
        "shown": shown,
        "order": similarity_order(output),
        "kinds": each.kinds,
        "states": list(each.states),
        "values": {
            name: {"units": value.shape[1], **_encode_array(value[:, _columns_of(shown, value)], bits)}
            for name, value in each.values.items()
        },
        "wires": {
            name: {"units": v.shape[1], **_encode_array(v[:, _columns_of(shown, v)], min(bits, 16))}
            for name, v in each.wires.items()
        },
        "saturation": {name: [s.low.tolist(), s.high.tolist()] for name, s in each.saturation.items()},
        "half_life": {name: _infinite_as_none(value) for name, value in each.half_life.items()},
        "memory": {name: {k: v.tolist() for k, v in memory._asdict().items()} for name, memory in each.memory.items()},
        "flow": {
            name: {
                "lags": flow.lags,
                "trained": flow.quantiles.tolist(),
                "initial": None if flow.initial_median is None else flow.initial_median.tolist(),
                "direct_path": None if flow.direct_path is None else flow.direct_path.tolist(),
            }
            for name, flow in each.flow.items()
        },
        "survival": None if each.dynamics is None else each.dynamics.survival_quantiles.tolist(),
    }


def _columns_of(shown: list[int], values: np.ndarray) -> list[int]:
    """The columns of the shown units, or the only column."""
    return [unit for unit in shown if unit < values.shape[1]] if values.shape[1] > 1 else [0]


def _encode_array(values: np.ndarray, bits: int) -> dict[str, Any]:
    if bits == 32 or not np.isfinite(values).all():  # only 32 bits can express NaN
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


def _pad(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, (0, size - len(values)))


def _infinite_as_none(values: np.ndarray) -> list[float | None]:
    """A list of numbers with None for infinity, which JSON cannot represent."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _round(data: Any) -> Any:
    """Round all numbers to seven significant digits, except the spacings of arrays."""
    if isinstance(data, float):
        return float(f"{data:.{_SIGNIFICANT_DIGITS}g}")
    if isinstance(data, dict):
        return {name: value if name == "spacing" else _round(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_round(value) for value in data]
    return data
