"""`gg.to_c`: a layer or a chain of modules as one header and one C99 file without dependencies."""

import os
import re
import struct
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from torch import nn

from glassgate.export.c_program import KEYWORDS
from glassgate.export.c_stages import Array, LevelStage, Stage, stages_of
from glassgate.export.c_step import number
from glassgate.export.errors import ExportError
from glassgate.export.files import write_all


def to_c(
    module: nn.Module,
    folder: str | os.PathLike[str],
    name: str = "model",
    *,
    weights: str = "const",
    max_steps: int = 1024,
) -> tuple[Path, Path]:
    """Writes a layer as C99: `NAME.h` and `NAME.c`, which need only the C library's mathematics (libm).

    The functions are, with `real` float or double like the parameters:

    - `NAME_init(NAME_state *)` makes a state, whose memory is the caller's; `NAME_reset` makes its states the initial
      ones again.
    - `NAME_step(NAME_state *, const real *x, real *y)` takes one step: H_in numbers to H_out numbers.
    - `NAME_run(NAME_state *, const real *x, real *y, size_t steps)` takes several: (steps, H_in) to (steps, H_out).
      The states stay for the next call. A second direction begins at its initial states in every call.

    No function allocates memory, has global state, locks or fails, so they can run in a real-time thread. With
    `weights="file"` the weights are in `NAME.weights`; `NAME_load` reads them into a `NAME_weights`, and `NAME_init`
    takes that as a second argument.

    Args:
        module: a layer of any cell, `nn.Linear`, `nn.Embedding`, an activation, or `nn.Sequential` of these. Layers in
            it pass their output on, not their states.
        folder: of the files; it is made if it is missing.
        name: begins the names of files and functions.
        weights: "const" for numbers in the C file, "file" for a file of their own.
        max_steps: most steps of a call of `NAME_run`, where a stack with two directions needs memory for them.

    Returns:
        the paths of the header and of the C file.

    Raises:
        ExportError: a module cannot be expressed, or the folder cannot be written to.

    Example:
        >>> import tempfile, glassgate as gg
        >>> header, source = gg.to_c(gg.LSTM(1, 8), tempfile.mkdtemp(), name="net")
        >>> "void net_step(net_state *s, const float *x, float *y);" in header.read_text()
        True
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name in KEYWORDS:
        raise ExportError(f"to_c: name must be an identifier of C, got {name!r}")
    if weights not in ("const", "file"):
        raise ExportError(f"to_c: weights must be 'const' or 'file', got {weights!r}")
    if not isinstance(max_steps, int) or max_steps < 1:
        raise ExportError(f"to_c: max_steps must be a positive integer, got {max_steps!r}")
    program = Program(*stages_of(module), name, weights == "file", max_steps)
    files: dict[str, str | bytes] = {f"{name}.h": program.header, f"{name}.c": program.source}
    if weights == "file":
        files[f"{name}.weights"] = program.binary
    paths = write_all(folder, files, "to_c")
    return paths[0], paths[1]


def _support(code: str) -> str:
    """The helper functions that the code needs."""
    blocks = resources.files("glassgate.export").joinpath("support.c").read_text("utf-8").split("\n\n")
    kept: list[str] = []
    for block in reversed(blocks):
        lines = block.splitlines()
        for line in reversed(lines):
            if line.startswith("LANE_BY_LANE") and not _uses(code, line[len("LANE_BY_LANE(") :].partition(",")[0]):
                lines.remove(line)
        defined = re.findall(r"^HELPER \w+ (\w+)\(", block, re.MULTILINE)
        if lines and (not defined or any(_uses(code, name) for name in defined)):
            kept.append("\n".join(lines))
            code += kept[-1]
    return "\n\n".join(reversed(kept)) + "\n"


def _uses(code: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", code) is not None


class Program:
    """The text of both files.

    Args:
        stages: of the network.
        block: units in a block.
        double: whether numbers are double.
        name: begins the names of files and functions.
        from_file: whether weights are in a file of their own.
        max_steps: most steps of a call, where several stages have two directions.
    """

    def __init__(
        self, stages: Sequence[Stage], block: int, double: bool, name: str, from_file: bool, max_steps: int
    ) -> None:
        self.stages, self.block, self.double, self.name = stages, block, double, name
        self.from_file, self.max_steps, self.real = from_file, max_steps, "double" if double else "float"
        self.both_ways = any(stage.both_ways for stage in stages)
        self.has_work = self.both_ways and len(stages) > 1
        self.input, self.output = stages[0].input, stages[-1].output
        self.arrays = [array for stage in stages for array in stage.arrays]

    @property
    def binary(self) -> bytes:
        """The weights file: the magic number, how many numbers there are, and those, little-endian."""
        values = np.concatenate([array.values.reshape(-1) for array in self.arrays])
        kind = "<f8" if self.double else "<f4"
        return struct.pack("<4sI", b"GGW8" if self.double else b"GGW4", len(values)) + values.astype(kind).tobytes()

    @property
    def header(self) -> str:
        """NAME.h."""
        name, real = self.name, self.real
        states = [f"    {real} {state}[{size}];" for stage in self.stages for state, size in stage.states.items()]
        lines = [
            f"/* {name}: {self.input} numbers in, {self.output} numbers out, for each step. Written by Glassgate.",
            "   All memory is in the state, which belongs to the caller; states are independent of each other. */",
            f"#ifndef {name.upper()}_H",
            f"#define {name.upper()}_H",
            "#include <stddef.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            f"enum {{ {name}_input_size = {self.input}, {name}_output_size = {self.output} }};",
        ]
        if self.has_work:
            widest = max(stage.output for stage in self.stages[:-1])
            lines += [f"enum {{ {name}_max_steps = {self.max_steps} }};"]
            states += [f"    {real} work[2][{self.max_steps * widest}];"]
        if self.from_file:
            lines += ["", "typedef struct {"]
            lines += [f"    {real} {array.name}[{array.values.size}];" for array in self.arrays]
            lines += [f"}} {name}_weights;", "", f"/* Reads {name}.weights; 0, or -1 if it cannot be read. */"]
            lines += [f"int {name}_load({name}_weights *w, const char *path);"]
            states.append(f"    const {name}_weights *weights;")
        weights = f", const {name}_weights *w" if self.from_file else ""
        lines += [
            "",
            "typedef struct {",
            *(states or ["    char nothing;"]),
            f"}} {name}_state;",
            "",
            "/* Makes a state" + (" with these weights, which must stay where they are. */" if weights else ". */"),
            f"void {name}_init({name}_state *s{weights});",
            "/* Makes the states of all layers the initial ones again. */",
            f"void {name}_reset({name}_state *s);",
        ]
        if not self.both_ways:
            lines += [
                "/* One step. */",
                f"void {name}_step({name}_state *s, const {real} *x, {real} *y);",
                "/* Several steps, (steps, input_size) to (steps, output_size); returns 0. */",
            ]
        else:
            limit = f" Returns -1 if there are more than {name}_max_steps." if self.has_work else ""
            lines += [
                "/* A block of steps, (steps, input_size) to (steps, output_size). The forward states go on from the",
                f"   block before; the reverse direction begins at the block's last step. Returns 0.{limit} */",
            ]
        lines += [
            f"int {name}_run({name}_state *s, const {real} *x, {real} *y, size_t steps);",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    @property
    def source(self) -> str:
        """NAME.c."""
        code = [f"{stage.text}\n" for stage in self.stages if stage.text]
        parts = [
            f'#include "{self.name}.h"\n\n#include <math.h>\n#include <stdint.h>\n'
            + ("#include <stdio.h>\n" if self.from_file else "")
            + "#include <string.h>\n",
            f"typedef {self.real} real;\ntypedef int{64 if self.double else 32}_t whole;\n"
            f"#define SIZE {8 if self.double else 4}\n#define MATH(function) function{'' if self.double else '##f'}\n"
            f"#define BLOCK {self.block} /* units whose weights are stored side by side */\n",
            _support("\n".join(code)),
            *([] if self.from_file else map(self._array, self.arrays)),
            *code,
            *self._interface(),
        ]
        return "\n".join(parts)

    def _array(self, array: Array) -> str:
        numbers = [number(value, self.double) for value in array.values.reshape(-1).tolist()]
        lines = [", ".join(numbers[k : k + 8]) for k in range(0, len(numbers), 8)]
        return f"static const real {array.name}[{len(numbers)}] ALIGNED = {{\n    " + ",\n    ".join(lines) + "};\n"

    def _weights(self, lines: Iterator[str]) -> list[str]:
        """The lines with the weights where they are."""
        return [self._located(line) for line in lines]

    def _located(self, line: str) -> str:
        if self.from_file:
            for array in self.arrays:
                line = re.sub(rf"\b{array.name}\b", f"s->weights->{array.name}", line)
        return line

    def _interface(self) -> Iterator[str]:
        name, real = self.name, self.real
        if self.from_file:
            yield self._load()
        for stage in self.stages:
            if isinstance(stage, LevelStage):
                for direction in stage.directions:
                    lines = []
                    for state in (f"{direction.name}_{key}" for key in direction.states):
                        target = f"s->{state}"
                        source = stage.initial.get(state)
                        value = f"memcpy({target}, {source}, sizeof {target});" if source else None
                        lines.append(self._located(value or f"memset({target}, 0, sizeof {target});"))
                    body = "".join(f"    {line}\n" for line in lines)
                    yield f"static void reset_{direction.name}({name}_state *s) {{\n{body}}}\n"
        resets = "".join(
            f"    reset_{direction.name}(s);\n"
            for stage in self.stages
            if isinstance(stage, LevelStage)
            for direction in stage.directions
        )
        weights = f", const {name}_weights *w" if self.from_file else ""
        keep = "    s->weights = w;\n" if self.from_file else ""
        resets = resets or "    (void)s;\n"
        yield f"void {name}_reset({name}_state *s) {{\n{resets}}}\n"
        yield f"void {name}_init({name}_state *s{weights}) {{\n{keep}    {name}_reset(s);\n}}\n"
        if self.both_ways:
            yield self._run_both_ways()
        else:
            yield self._step()
            yield (
                f"int {name}_run({name}_state *s, const {real} *x, {real} *y, size_t steps) {{\n"
                f"    for (size_t t = 0; t < steps; t++) {name}_step(s, x + t * {self.input}, y + t * {self.output});\n"
                "    return 0;\n}\n"
            )

    def _step(self) -> str:
        lines, x, unused = [], "x", not any(stage.states for stage in self.stages)
        if unused and not self.from_file:
            lines.append("(void)s;")
        for k, stage in enumerate(self.stages):
            last = k == len(self.stages) - 1
            if not last:
                lines.append(f"real out{k}[{stage.output}];")
            y = "y" if last else f"out{k}"
            lines += self._weights(stage.step(x, y))
            x = y
        body = "".join(f"    {line}\n" for line in lines)
        return f"void {self.name}_step({self.name}_state *s, const {self.real} *x, {self.real} *y) {{\n{body}}}\n"

    def _run_both_ways(self) -> str:
        lines, x = [], "x"
        if self.has_work:
            lines.append(f"if (steps > {self.name}_max_steps) return -1;")
        for k, stage in enumerate(self.stages):
            y = "y" if k == len(self.stages) - 1 else f"s->work[{k % 2}]"
            if isinstance(stage, LevelStage):
                lines += self._weights(stage.run(x, y))
            else:
                lines.append("for (size_t t = 0; t < steps; t++) {")
                step = stage.step(f"{x} + t * {stage.input}", f"{y} + t * {stage.output}")
                lines += [f"    {line}" for line in self._weights(step)]
                lines.append("}")
            x = y
        lines.append("return 0;")
        body = "".join(f"    {line}\n" for line in lines)
        of = f"{self.name}_state *s, const {self.real} *x, {self.real} *y, size_t steps"
        return f"int {self.name}_run({of}) {{\n{body}}}\n"

    def _load(self) -> str:
        magic = "GGW8" if self.double else "GGW4"
        count = sum(array.values.size for array in self.arrays)
        return f"""\
int {self.name}_load({self.name}_weights *w, const char *path) {{
    FILE *file = fopen(path, "rb");
    char magic[4];
    uint32_t count = 0;
    if (!file) return -1;
    const int fits = fread(magic, 4, 1, file) == 1 && !memcmp(magic, "{magic}", 4) &&
                     fread(&count, 4, 1, file) == 1 && count == {count} &&
                     sizeof *w == {count} * sizeof(real) && fread(w, sizeof *w, 1, file) == 1;
    fclose(file);
    return fits ? 0 : -1;
}}
"""
