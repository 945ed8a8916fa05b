"""`gg.to_c` writes a layer or a sequence of modules as a C99 header and source file, which need only libm."""

import os
import re
import struct
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from torch import nn

from glassgate.export.c_chain import Chain
from glassgate.export.c_dialect import KEYWORDS, LITERALS, decomposed_functions
from glassgate.export.c_stages import Array, Stage, to_chains
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
    """Writes a layer or a sequence of modules as C99 files `NAME.h` and `NAME.c`, which need only libm.

    The files contain these functions. `real` is float or double, the type of the module's weights.

    - `NAME_init(NAME_state *)` initialises a state in the caller's memory. `NAME_reset` restores the initial
      states.
    - `NAME_step(NAME_state *, const real *x, real *y)` computes one step, from H_in inputs to H_out outputs. A
      bidirectional network has no such function.
    - `NAME_run(NAME_state *, const real *x, real *y, size_t steps)` computes several steps, from (steps, H_in) to
      (steps, H_out). Each call continues from the states of the previous call. The reverse direction starts from its
      initial states in every call.

    These functions allocate no memory, have no global state and take no locks, so they can run in a real-time thread.
    Only `NAME_run` can fail. It returns -1 if it needs a buffer and gets more than `max_steps` steps.

    With `weights="file"`, the weights are in `NAME.weights`. `NAME_load` reads them into a `NAME_weights` and returns
    -1 if it fails. `NAME_init` takes the `NAME_weights` as its second argument.

    Args:
        module: a layer of any cell, `nn.Linear`, `nn.Embedding`, an activation (ReLU, Tanh, Sigmoid), or an
            `nn.Sequential` of these. A layer in a sequence passes on its output, not its states. An `nn.ModuleDict` of
            such modules becomes one file with functions for each of them: `NAME_KEY_init`, `NAME_KEY_step` and so on.
        folder: the folder of the files; it is created if it is missing.
        name: the prefix of the names of files and functions.
        weights: "const" for constants in the C file, "file" for a separate file.
        max_steps: the length of the buffer that `NAME_run` needs if the network is bidirectional and has several
            layers or modules; ignored otherwise.

    Returns:
        the paths of the header and of the C file.

    Raises:
        ExportError: a module has no C equivalent, or the folder cannot be written to.

    Example:
        >>> import tempfile, glassgate as gg
        >>> header, source = gg.to_c(gg.LSTM(1, 8), tempfile.mkdtemp(), name="net")
        >>> "void net_step(net_state *s, const float *x, float *y);" in header.read_text()
        True
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name in KEYWORDS:
        raise ExportError(f"to_c: name must be a C identifier, got {name!r}")
    if weights not in ("const", "file"):
        raise ExportError(f"to_c: weights must be 'const' or 'file', got {weights!r}")
    if not isinstance(max_steps, int) or max_steps < 1:
        raise ExportError(f"to_c: max_steps must be a positive integer, got {max_steps!r}")
    for key in module if isinstance(module, nn.ModuleDict) else ():
        if not re.fullmatch(r"\w+", key, re.ASCII):
            raise ExportError(f"to_c: keys of the ModuleDict may only contain letters, digits and _, got {key!r}")
    program = Program(*to_chains(module), name, weights == "file", max_steps)
    files: dict[str, str | bytes] = {f"{name}.h": program.header, f"{name}.c": program.source}
    if weights == "file":
        files[f"{name}.weights"] = program.binary
    paths = write_all(folder, files, "to_c")
    return paths[0], paths[1]


def _support(code: str, double: bool) -> str:
    """The parts of `support.c` and the decomposed functions that the code uses, directly or through other functions."""
    text = resources.files("glassgate.export").joinpath("support.c").read_text("utf-8").rstrip("\n")
    blocks = text.split("\n\n")
    blocks += [function for name, function in decomposed_functions(double).items() if not _uses(text, name)]
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
    """Generates the contents of the header, the C file and the weights file.

    Args:
        chains: the stages of each chain of modules, by its key in the `nn.ModuleDict`; "" if there is only one.
        block: the number of units that a function computes together.
        double: whether `real` is double.
        name: the prefix of the names of files and functions.
        from_file: whether the weights are in a separate file.
        max_steps: the length of the buffer of a bidirectional network with several stages.
    """

    def __init__(
        self,
        chains: Mapping[str, Sequence[Stage]],
        block: int,
        double: bool,
        name: str,
        from_file: bool,
        max_steps: int,
    ) -> None:
        self.block, self.double, self.name, self.from_file = block, double, name, from_file
        self.real, self.magic = ("double", "GGW8") if double else ("float", "GGW4")
        weights = f"{name}_weights" if from_file else ""
        self.chains = [
            Chain(f"{name}_{key}" if key else name, stages, self.real, weights, max_steps)
            for key, stages in chains.items()
        ]
        self.arrays = [array for chain in self.chains for array in chain.arrays]

    @property
    def binary(self) -> bytes:
        """NAME.weights: a 4-byte format name, the count of numbers, and the numbers, all little-endian."""
        values = np.concatenate([array.values.reshape(-1) for array in self.arrays])
        kind = "<f8" if self.double else "<f4"
        return struct.pack("<4sI", self.magic.encode(), len(values)) + values.astype(kind).tobytes()

    @property
    def header(self) -> str:
        """The contents of NAME.h."""
        name = self.name
        lines = [
            "/* Written by Glassgate. The caller allocates the states. States are independent of each other. */",
            f"#ifndef {name.upper()}_H",
            f"#define {name.upper()}_H",
            "#include <stddef.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
        ]
        if self.from_file:
            lines.append("typedef struct {")
            lines += [f"    {self.real} {array.name}[{array.values.size}];" for array in self.arrays]
            lines += [f"}} {name}_weights;", "", f"/* Reads {name}.weights. Returns 0, or -1 if it cannot be read. */"]
            lines += [f"int {name}_load({name}_weights *w, const char *path);", ""]
        for chain in self.chains:
            lines += [*chain.header, ""]
        lines += ["#ifdef __cplusplus", "}", "#endif", "#endif"]
        return "\n".join(lines) + "\n"

    @property
    def source(self) -> str:
        """The contents of NAME.c."""
        code = [f"{stage.text}\n" for chain in self.chains for stage in chain.stages if stage.text]
        parts = [
            f'#include "{self.name}.h"\n\n#include <math.h>\n#include <stdint.h>\n'
            + ("#include <stdio.h>\n" if self.from_file else "")
            + "#include <string.h>\n",
            f"typedef {self.real} real;\ntypedef int{64 if self.double else 32}_t integer;\n"
            f"#define SIZE {8 if self.double else 4}\n#define MATH(function) function{'' if self.double else '##f'}\n"
            f"#define BLOCK {self.block} /* units that are computed together; their weights are adjacent */\n",
            _support("\n".join(code), self.double),
            *([self._load()] if self.from_file else map(self._array, self.arrays)),
            *code,
            *(function for chain in self.chains for function in chain.functions),
        ]
        return "\n".join(parts)

    def _array(self, array: Array) -> str:
        numbers = [LITERALS[self.double](value).text for value in array.values.reshape(-1).tolist()]
        lines = [", ".join(numbers[k : k + 8]) for k in range(0, len(numbers), 8)]
        return f"static const real {array.name}[{len(numbers)}] ALIGNED = {{\n    " + ",\n    ".join(lines) + "};\n"

    def _load(self) -> str:
        count = sum(array.values.size for array in self.arrays)
        return f"""\
int {self.name}_load({self.name}_weights *w, const char *path) {{
    FILE *file = fopen(path, "rb");
    char magic[4];
    uint32_t count = 0;
    if (!file) return -1;
    const int fits = fread(magic, 4, 1, file) == 1 && !memcmp(magic, "{self.magic}", 4) &&
                     fread(&count, 4, 1, file) == 1 && count == {count} &&
                     sizeof *w == {count} * sizeof(real) && fread(w, sizeof *w, 1, file) == 1;
    fclose(file);
    return fits ? 0 : -1;
}}
"""
