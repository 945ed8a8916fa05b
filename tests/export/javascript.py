"""Runs emitted JavaScript in Node and returns its numbers."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from glassgate.export.javascript import Script, Weights, runtime


def node() -> str:
    """Return the path of Node. Without Node, skip the test."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


def run_in_node(folder: Path, scripts: list[Script], weights: Weights, calls: list[dict[str, Any]]) -> list[Any]:
    """Return the outputs and values of layers for each call.

    Args:
        calls: arguments of `runLayer`: the index of the layer, the flat input `x`, the number of steps, and edits.
    """
    program = "\n".join(
        [
            '"use strict";',
            runtime(),
            f"const arrayOf = unpackWeights({json.dumps(weights.packed())});",
            f"const steps = [{', '.join(f'{{{script.steps}}}' for script in scripts)}];",
            f"const layers = {json.dumps([script.layer for script in scripts])};",
            "const unpacked = layers.map((each) => withArrays(each, arrayOf));",
            f"const calls = {json.dumps(calls)};",
            "const results = calls.map(({ layer, x, count, edits }) => {",
            "  const input = Float32Array.from(x);",
            "  const { outputs, parts } = runLayer(unpacked[layer], steps[layer], input, count, { edits });",
            "  const values = Object.entries(parts).map(([label, { values }]) => [label, values]);",
            "  const plain = (found) => Object.fromEntries(Object.entries(found).map(([k, v]) => [k, [...v]]));",
            "  return { outputs: outputs.map((each) => [...each]),",
            "    values: Object.fromEntries(values.map(([label, found]) => [label, plain(found)])) };",
            "});",
            "console.log(JSON.stringify(results, (_, v) => (Number.isFinite(v) || typeof v !== 'number' ? v : null)));",
        ]
    )
    path = folder / "program.js"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run([node(), str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    results: list[Any] = json.loads(done.stdout)
    return results
