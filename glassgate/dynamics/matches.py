"""An index of the states of a data set, and a search for steps at which units have similar states (LSTMVis)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv1d

from glassgate.shapes import ShapeError, check_size
from glassgate.storage import write_file

FORMAT = 2
"""The version of the file format."""
_METADATA_KEY = "glassgate_index"
"""The key of the metadata in the safetensors file."""
_MAX_CODE = 255
"""The largest code of a quantised value."""
_WINDOWS_AT_ONCE = 2**18
"""The number of windows whose distances are computed together."""
ACTIVE = 1.0
"""An active unit differs from its mean by more than this number of standard deviations."""
_MAX_ACTIVE_UNITS = 8
"""The maximum number of units that `Index.active` returns."""


_STATE_FIELDS, _COMMON_FIELDS = ("states", "low", "scale", "deviation"), ("starts", "text_bytes", "text_ends")
"""The attributes of an index that have one tensor per state, and the attributes that are a single tensor."""


class NotAnIndex(ValueError):
    """A file contains no index, or an index in another version of the format."""


class Match(NamedTuple):
    """A window of a sequence, as long as the pattern, in which the units have similar states."""

    sequence: int
    """The position of the sequence in the index, from 0."""
    start: int
    """The first step in the sequence."""
    stop: int
    """The step after the last one."""
    distance: float
    """The root mean square difference from the pattern, in standard deviations of each unit."""
    closer: float
    """The fraction of all windows of the data set whose distance is at most `distance`."""


@dataclass(frozen=True)
class Index:
    """The states at all steps of a data set, in 8 bits per number, and the text of each step.

    Attributes:
        states: uint8 (H, T) by state, for example "layer0.forward.h". T is the total length of all sequences.
        low, scale: (H,) by state; the value of a state is `low + scale * states`.
        deviation: (H,) by state: the standard deviation of each unit.
        starts: (K + 1,) int64: the first step of each of the K sequences, and T.
        text_bytes: uint8, the concatenated texts of all steps in UTF-8.
        text_ends: (T,) int64: the end of the text of each step in `text_bytes`.
        about: a description of the data, for example its file and the version of the weights.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(2, 8)
        >>> *_, states = layer(torch.randn(50, 4, 2), return_states=True)
        >>> index = gg.dynamics.Index.of({name: v[:, n].detach() for name, v in states.items()} for n in range(4))
        >>> pattern = index.values("layer0.forward.h", 2)[10:15]
        >>> matches = gg.dynamics.search(index, "layer0.forward.h", pattern, units=[3, 5])
        >>> matches[0][:3]
        (2, 10, 15)
    """

    states: Mapping[str, Tensor]
    low: Mapping[str, Tensor]
    scale: Mapping[str, Tensor]
    deviation: Mapping[str, Tensor]
    starts: Tensor
    text_bytes: Tensor
    text_ends: Tensor
    about: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        sequences: Iterable[Mapping[str, Tensor]],
        texts: Iterable[Sequence[str]] = (),
        about: Mapping[str, str] | None = None,
    ) -> "Index":
        """Build the index of a data set.

        Args:
            sequences: the states (L, H) or (L, ...) of each sequence by name, on any device.
            texts: the texts of the L steps of each sequence; empty for an index without texts.
            about: a description of the data.

        Raises:
            ValueError: the sequences are empty, or the number of texts is not the number of steps.
        """
        by_state: dict[str, list[Tensor]] = {}
        lengths = []
        for sequence in sequences:
            for name, values in sequence.items():
                by_state.setdefault(name, []).append(values.detach().flatten(1).to("cpu", torch.float16))
            lengths.append(len(next(iter(sequence.values()))))
        step_texts = [text.encode() for of_sequence in texts for text in of_sequence] or [b""] * sum(lengths)
        if not lengths or len(step_texts) != sum(lengths):
            raise ValueError(
                f"Index: expected at least one step, and as many texts as steps or no texts, got {sum(lengths)} steps "
                f"and {len(step_texts)} texts"
            )
        states, low, scale, deviation = {}, {}, {}, {}
        for name, parts in by_state.items():
            values = torch.cat(parts).T.contiguous()
            low[name], high = (v.float() for v in values.aminmax(dim=1))
            scale[name] = (high - low[name]).clamp_min(1e-6) / _MAX_CODE
            states[name] = torch.empty(values.shape, dtype=torch.uint8)
            deviation[name] = torch.empty_like(low[name])
            # One unit at a time, because all units in float32 would take four times the memory of the index.
            for unit, row in enumerate(values):
                states[name][unit] = ((row.float() - low[name][unit]) / scale[name][unit]).round().to(torch.uint8)
                deviation[name][unit] = row.float().std(correction=0)
        starts = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int64)
        text_bytes = torch.tensor(bytearray(b"".join(step_texts)), dtype=torch.uint8)
        text_ends = torch.tensor([len(text) for text in step_texts]).cumsum(0)
        return cls(states, low, scale, deviation, starts, text_bytes, text_ends, about)

    @property
    def steps(self) -> int:
        """T, the total number of steps."""
        return int(self.starts[-1])

    def values(self, name: str, sequence: int) -> Tensor:
        """(L, H): a state in one sequence.

        Raises:
            KeyError: the name of the state is unknown.
            IndexError: the sequence does not exist.
        """
        self._check(name)
        if not 0 <= sequence < len(self.starts) - 1:
            raise IndexError(f"Index: sequence must be below {len(self.starts) - 1}, got {sequence}")
        start, stop = self.starts[sequence : sequence + 2].tolist()
        return (self.low[name][:, None] + self.scale[name][:, None] * self.states[name][:, start:stop]).T

    def text(self, sequence: int, start: int, stop: int) -> list[str]:
        """The texts of a range of steps of a sequence. Steps outside of the sequence are left out."""
        first, last = self.starts[sequence : sequence + 2].tolist()
        start, stop = max(first, first + start), min(last, first + stop)
        ends = [int(self.text_ends[start - 1]) if start else 0, *self.text_ends[start:stop].tolist()]
        return [bytes(self.text_bytes[a:b].tolist()).decode() for a, b in pairwise(ends)]

    def active(self, name: str, values: Tensor, start: int, stop: int) -> list[int]:
        """At most eight units that are active at every step of a range.

        A unit is active if it differs from its mean over the data set by more than one standard deviation, in the same
        direction at all these steps. Units that are inactive just before and after the range come first. Within both
        groups, units are sorted by their smallest difference in the range, in descending order.

        Args:
            name: the name of the state.
            values: (L, H), the state in a sequence.
            start, stop: the range of steps.
        """
        self._check(name)
        scaled = (values.float() - self.mean(name)) / self.deviation[name].clamp_min(1e-6)
        in_range = scaled[start:stop]
        smallest = torch.maximum(in_range.amin(0), -in_range.amax(0))
        sign = in_range.mean(0).sign()
        neighbours = torch.cat([scaled[max(0, start - 1) : start], scaled[stop : stop + 1]]) * sign
        outside = neighbours.amax(0) if len(neighbours) else torch.zeros_like(smallest)
        # Scaled differences are far below 1,000, so units that are inactive next to the range come first.
        order = ((outside < ACTIVE).float() * 1e3 + smallest).argsort(descending=True)
        return [unit for unit in order.tolist() if smallest[unit] > ACTIVE][:_MAX_ACTIVE_UNITS]

    def mean(self, name: str) -> Tensor:
        """(H,): the mean of each unit of a state."""
        return self.low[name] + self.scale[name] * torch.stack([row.float().mean() for row in self.states[name]])

    def _check(self, name: str) -> None:
        if name not in self.states:
            raise KeyError(f"Index: no state {name!r}; there are {', '.join(self.states)}")

    def save(self, path: str | Path) -> None:
        """Write the index to a safetensors file. An existing file is replaced only by a complete one."""
        from safetensors.torch import save

        tensors = {f"{kind}:{name}": v for kind in _STATE_FIELDS for name, v in getattr(self, kind).items()}
        tensors |= {name: getattr(self, name) for name in _COMMON_FIELDS}
        metadata = {"format": FORMAT, "about": dict(self.about or {}), "names": list(self.states)}
        write_file(path, save(tensors, {_METADATA_KEY: json.dumps(metadata)}))

    @classmethod
    def open(cls, path: str | Path) -> "Index":
        """Open an index that `save` wrote. The file is mapped into memory, so a search reads only the units it needs.

        Raises:
            FileNotFoundError: there is no file.
            NotAnIndex: the file is damaged, contains something else, or was written by another version.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), "pt") as file:
                metadata = json.loads((file.metadata() or {})[_METADATA_KEY])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError) as error:
            raise NotAnIndex(
                f"{path}: expected an index of states, got a damaged file or a file of another kind ({error})"
            ) from None
        if metadata["format"] != FORMAT:
            raise NotAnIndex(f"{path}: written in format {metadata['format']}, this version reads {FORMAT}")

        def by_name(kind: str) -> dict[str, Tensor]:
            return {name: tensors[f"{kind}:{name}"] for name in metadata["names"]}

        states, low, scale, deviation = (by_name(kind) for kind in _STATE_FIELDS)
        starts, text_bytes, text_ends = (tensors[name] for name in _COMMON_FIELDS)
        return cls(states, low, scale, deviation, starts, text_bytes, text_ends, metadata["about"])


def search(
    index: Index, name: str, pattern: Tensor, units: Sequence[int], *, matches: int = 10, apart: int | None = None
) -> list[Match]:
    """Find the steps of a data set at which some units are closest to a pattern, the closest first.

    The search compares the pattern with all windows of L steps, as LSTMVis does (Strobelt et al. 2018,
    arXiv:1606.07461). The distance of a window is the root mean square difference over its steps and units, in standard
    deviations of each unit. Matches do not cross the end of a sequence.

    Args:
        index: the index of the data set.
        name: the name of the state, for example "layer0.forward.h".
        pattern: (L, H), the states to search for, of all units.
        units: the units to compare.
        matches: the maximum number of matches.
        apart: the minimum number of steps between the starts of two matches. With the default, L, matches do not
            overlap.

    Raises:
        KeyError: the name of the state is unknown.
        ShapeError: the pattern has another number of units.
        ValueError: a unit does not exist, or `units` is empty.

    Example:
        See `Index`.
    """
    index._check(name)
    check_size("search", "matches", matches)
    H = len(index.low[name])
    if pattern.dim() != 2 or pattern.shape[1] != H or not len(pattern):
        raise ShapeError(f"search: pattern must be (L, H) = (L, {H}), got {tuple(pattern.shape)}")
    chosen = list(dict.fromkeys(units))
    if not chosen or not all(0 <= unit < H for unit in chosen):
        raise ValueError(f"search: units must be one or more numbers from 0 to {H - 1}, got {list(units)}")
    length, apart = len(pattern), len(pattern) if apart is None else apart
    distances = _distances(index, name, pattern.detach().float().cpu()[:, chosen], chosen)
    # Each match excludes at most the `apart` windows before it and after it.
    candidates = min(len(distances), matches * (2 * apart + 1))
    closest = distances.topk(candidates, largest=False)
    found: list[Match] = []
    taken: list[int] = []
    valid = int(distances.isfinite().sum())
    for distance, at in zip(closest.values.tolist(), closest.indices.tolist(), strict=True):
        if len(found) == matches or distance == float("inf"):
            break
        if all(abs(at - other) >= apart for other in taken):
            taken.append(at)
            sequence = int(torch.searchsorted(index.starts, at, right=True)) - 1
            first = at - int(index.starts[sequence])
            closer = int((distances <= distance).sum()) / valid
            found.append(Match(sequence, first, first + length, distance, closer))
    return found


def _distances(index: Index, name: str, pattern: Tensor, units: list[int]) -> Tensor:
    """The distance (T,) of the window that begins at each step; infinite if it crosses the end of a sequence."""
    length, total = len(pattern), index.steps
    distances = torch.full((total,), torch.inf)
    deviation = index.deviation[name][units].clamp_min(1e-6)
    # Codes are centred at zero. Otherwise the sum of large squares and products below would cancel and lose accuracy.
    scale = index.scale[name][units] / deviation
    target = ((pattern - index.low[name][units]) / deviation - _MAX_CODE / 2 * scale).T
    rows = index.states[name]
    for start in range(0, total - length + 1, _WINDOWS_AT_ONCE):
        stop = min(total, start + _WINDOWS_AT_ONCE + length - 1)
        codes = torch.stack([rows[unit, start:stop] for unit in units])
        values = scale[:, None] * (codes - _MAX_CODE / 2)
        squares = conv1d(values.square().sum(0)[None, None], torch.ones(1, 1, length))[0, 0]
        products = conv1d(values[None], target[None])[0, 0]
        mean = (squares - 2 * products + target.square().sum()).clamp_min(0) / target.numel()
        distances[start : start + len(mean)] = mean.sqrt()
    for end in index.starts[1:].tolist():
        distances[max(0, end - length + 1) : end] = torch.inf
    return distances
