"""Names in cells that could conflict with names in printed kernels."""

import builtins
import keyword
import re
from functools import cache

import numpy as np
import torch

import glassgate as gg

AFFIXES = ("d_{}", "{}_prev", "{}_next", "{}_rows", "{}_row", "{}_pitch", "{}_starts", "{}_0", "{}_values", "{}_noise")
AFFIXES += ("{}_at", "{}_rank", "{}_ranks", "{}_pre", "{}_ih", "{}_hh", "{}_hr", "{}_out", "{}_before", "{}_", "_{}")
AFFIXES += ("d_new_{}", "gate_{}", "d_gate_{}", "new_{}", "{}_i", "d_{}_0", "left_{}", "sum_{}", "total_{}")
AFFIXES += (
    "all_{}",
    "state_{}",
    "now_{}",
    "{}_sum",
    "{}_lanes",
    "{}_bias",
    "{}_ptr",
    "{}_carry",
    "{}_stored",
    "{}_stride",
)
OWN = """
h c n i f g o r z x y u v d v0 v1 v2 row rows left last first exp sum sums total unit units weights weight_ih weight_hh
weight_hr bias_ih bias_hh raw saved block out panel h_prev d_pre d_state d_parameter job word words state grad noise
update gain gain_i gates step steps size sizes live lanes dt here there near reset resets initial final data
given form plan input output hx l0 reverse self cell forward backward
"""
OF_TARGETS = """
NAN INFINITY NULL EOF INT_MAX UINT32_MAX M_PI HUGE_VAL unix linux i386 errno stdin stdout signgam I J bool complex
auto int long double float char short signed unsigned const static extern register volatile inline restrict struct
union typedef sizeof switch case default goto void do new delete this operator private public template typename
namespace using virtual constexpr nullptr alignas thread_local xor bitand asm size_t int32_t uint32_t memcpy memset
abort printf exp expf log logf pow fabs fmin rint erf y0 j1 gamma W w k at part real integer lanes mask broadcast
ALIGNED ROWS BLOCK LANES SIZE MATH NOT REAL UNROLL select_lanes sum_lanes first_lanes function var let typeof
instanceof arguments undefined NaN Infinity Math Float32Array Number Object console eval async of enum export extends
interface package super throw catch null true false switch multiply scratch products edit roundToEven tl triton
program_id seq start unit_ok out_ok column right here expected arrived patience iteration T N H P heads ROWS UNITS
COLUMNS PRECISION power row_sum barrier
"""
"""Names in C, C++, JavaScript and Triton, and names that generated code in these languages uses itself."""
UNICODE = "α β Δ ε µ ñ é ß ǆ ﬁ 名 门 состояние μ"  # noqa: RUF001
"""Python normalises identifiers, so some of these are two spellings of one name."""
TAKEN = {
    *keyword.kwlist,
    "ih",
    "hh",
    "noise",
    "update",
    "masked",
    "_product",
    "_h",
    "torch",
    "F",
    "gg",
    "self",
    "a",
    "s",
    "p",
}
"""Names that the generated source uses, and names that `gg.Cell` refuses."""
REFUSED_PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
"""Names that the parameter of a cell cannot have. It cannot be named `h_0` either if the cell has a state `h`."""


def _identifiers(text: str) -> list[str]:
    return sorted(set(re.findall(r"[^\W\d]\w*", text)))


@cache
def hostile() -> tuple[str, ...]:
    """Return all names without affixes."""
    printed = [gg.source(cell) for cell in (gg.cells.GRUv3(), gg.cells.LayerNormLSTM(), gg.cells.SLSTM(2))]
    names = [
        *OWN.split(),
        *OF_TARGETS.split(),
        *UNICODE.split(),
        *_identifiers("\n".join(printed)),
        *keyword.softkwlist,
        *dir(builtins),
        *(name for name in dir(torch) if callable(getattr(torch, name)) and name.islower()),
        *(name for name in dir(np) if callable(getattr(np, name)) and name.islower()),
    ]
    return tuple(dict.fromkeys(n for n in names if n.isidentifier() and n not in TAKEN and not n.startswith("__")))
