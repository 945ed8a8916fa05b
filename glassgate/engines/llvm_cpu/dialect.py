"""The Python subset of printed kernels as a dialect of generated code: operations, literals, and names."""

import builtins
import keyword
from collections.abc import Hashable

from glassgate.engines.lowering.expressions import (
    AND,
    COMPARISON,
    OR,
    PYTHON_LITERALS,
    SIGN,
    SIGNS_AND_ARITHMETIC,
    SUM,
    Dialect,
    call,
    infix,
    prefix,
)
from glassgate.engines.lowering.expressions import Names as ValueNames
from glassgate.engines.lowering.ir import Value
from glassgate.engines.symbolic.operations import ARITY, OPERATIONS, PRIMITIVES

FUNCTION_NAMES = {"abs": "absolute", "round": "round_even", "pow": "power"}
"""The operations whose functions have other names in kernels. Other functions have the name of their operation."""

_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FORMS = {
    **{op: call(FUNCTION_NAMES.get(op, op), ARITY[op]) for op in PRIMITIVES - {"detach"}},
    **SIGNS_AND_ARITHMETIC,
    # Python chains comparisons, and its comparisons have a lower precedence than & and |.
    **{op: infix(sign, COMPARISON, SUM) for op, sign in _COMPARISONS.items()},
    "logical_and": infix("&", AND, SIGN),
    "logical_or": infix("|", OR, SIGN),
    "logical_not": prefix("~"),
}

_VARIABLES = (
    "address ahead block blocks done end first_block first_row from job live n previous reset rows step t tile_block "
    "tile_blocks tile_row tile_rows tile_start to unit waits weights"
)
_FUNCTIONS = (
    "BYTES LANES fill is_reset keep load number prefetch put_total round_rows shape_of_tiles store wait words "
    "write_row_addresses write_state_addresses"
)
ENGINE_NAMES = frozenset(f"_{name}" for name in (*_VARIABLES.split(), *_FUNCTIONS.split()))
"""The names of a kernel's own variables and the functions of `namespace.py`. Values and arguments get other names."""


def _spell(name: str) -> str:
    """The name of a value without underscores at its beginning, which are reserved for names of the engine."""
    name = name.lstrip("_")
    return name if name.isidentifier() else f"v{name}"


KERNEL = Dialect(
    _FORMS,
    PYTHON_LITERALS,
    ENGINE_NAMES.union(keyword.kwlist, keyword.softkwlist, dir(builtins), OPERATIONS, FUNCTION_NAMES.values()),
    _spell,
)


class Names:
    """The names in one kernel. Names of values never begin with an underscore; to avoid collisions, all others do."""

    def __init__(self) -> None:
        self._values: dict[Value, str] = {}
        self._internal: dict[Hashable, str] = {}
        self._of_values = ValueNames(KERNEL)

    def value(self, value: Value, name: str | None = None) -> str:
        """Return the name of a value: the given name or that of its variable in the step; without one, e.g. `v8`."""
        if value not in self._values:
            self._values[value] = self._of_values.new(name or value.name)
        return self._values[value]

    def internal(self, key: Hashable, label: str) -> str:
        """Return the name of an argument, an address or another object that is not a value.

        Args:
            key: identifies the object.
            label: the name without the underscore at the beginning. If another object has the same label, underscores
                are appended.
        """
        if key not in self._internal:
            name = f"_{label}"
            while name in ENGINE_NAMES or name in self._internal.values():
                name += "_"
            self._internal[key] = name
        return self._internal[key]
