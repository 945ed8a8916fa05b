"""The search in the script of a report, run in Node, equals `gg.dynamics.search` on the same sequences."""

import json
import subprocess
from typing import Any

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.data import page_data
from glassgate.glass.page_parts import resource
from glassgate.glass.places import Places, pack_states
from glassgate.glass.study import Study
from tests.compare import noise
from tests.export.javascript import node

LABEL, NAME = "layer0.forward", "layer0.forward.h"
LENGTHS = [40, 3, 25, 31]
SCRIPT = """
const source = embeddedPlaces(data.places, "layer0.forward");
const at = (unit, step) => marked[step][unit];
const units = activeUnits(source, at, 10, 14, 0, marked.length);
const pattern = (chosen) => chosen.map((unit) => marked.slice(10, 14).map((row) => row[unit]));
console.log(JSON.stringify({ units, found: nearestPlaces(source, pattern([1, 4, 5]), [1, 4, 5], 6),
  own: nearestPlaces(source, pattern([1, 4, 5]), [1, 4, 5], 6, [0, 40]) }));
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the script, with the index of the same sequences and a sequence with marked steps."""
    sequences = [noise(k, length, 6).float() for k, length in enumerate(LENGTHS)]
    marked = noise(9, 30, 6).float()
    marked[10:14, 2:4] = torch.tensor([4.0, -4.0])
    index = gg.dynamics.Index.of({NAME: values} for values in sequences)
    whole = torch.cat(sequences)
    places = Places(
        {LABEL: whole.T.numpy()}, {LABEL: whole.mean(0).numpy()}, {LABEL: whole.std(0, correction=0).numpy()},
        [[str(t) for t in range(length)] for length in LENGTHS], [0, 1, 2, 3], "dev", 99,
    )  # fmt: skip
    data = page_data(Study("", "", [], [], places=places))[0]
    program = tmp_path_factory.mktemp("search") / "program.js"
    parts = [resource(f"script/{name}.js") for name in ("words", "values", "search")]
    given = f"const data = {json.dumps(data)};\nconst marked = {json.dumps(marked.tolist())};"
    program.write_text("\n".join([*parts, given, SCRIPT]), encoding="utf-8")
    done = subprocess.run([node(), str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return {"index": index, "marked": marked, **json.loads(done.stdout)}


def test_the_search_of_the_page_equals_that_of_the_command(result: dict[str, Any]) -> None:
    """The index has 8 bits and the page 4, so places with nearly equal distances may be in another order."""
    truth = gg.dynamics.search(result["index"], NAME, result["marked"][10:14], [1, 4, 5], matches=6)
    here = result["found"]
    assert [each["distance"] for each in here] == pytest.approx([each.distance for each in truth], abs=0.05)
    assert {(each["sequence"], each["start"]) for each in here[:3]} <= {(m.sequence, m.start) for m in truth}
    assert [each["closer"] for each in here] == pytest.approx([each.closer for each in truth], abs=0.03)
    starts = np.array([[each["sequence"], each["start"]] for each in here])
    assert all(s + 4 <= LENGTHS[k] for k, s in starts)
    # Windows that overlap the marked steps are left out if the marked steps are in the searched sequences.
    assert all(each["sequence"] > 0 for each in result["own"])


def test_the_page_selects_the_same_units_as_the_command(result: dict[str, Any]) -> None:
    assert sorted(result["units"]) == sorted(result["index"].active(NAME, result["marked"], 10, 14))
    assert {2, 3} <= set(result["units"])


def test_states_are_packed_in_4_bits() -> None:
    values = noise(1, 5, 33).numpy()
    levels, low, spacing = pack_states(values)
    both = np.stack([levels & 15, levels >> 4], -1).reshape(5, -1)[:, :33]
    assert np.abs(low[:, None] + both * spacing[:, None] - values).max() <= spacing.max() / 2 + 1e-6
    assert levels.nbytes == 5 * 17
