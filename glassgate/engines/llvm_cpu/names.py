"""The names in the source text of a kernel. Values keep the names of the variables in the cell's step."""

import builtins
import keyword
from collections.abc import Hashable

from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import OPERATIONS

FUNCTION_NAMES = {"abs": "absolute", "round": "round_even", "pow": "power"}
"""The operations whose functions have other names in kernels. Other functions have the name of their operation."""
_RESERVED = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *OPERATIONS, *FUNCTION_NAMES.values()}


class Names:
    """The names in one kernel. Names of values never begin with an underscore; to avoid collisions, all others do."""

    def __init__(self) -> None:
        self._values: dict[Node, str] = {}
        self._internal: dict[Hashable, str] = {}
        self._taken: set[str] = set()

    def value(self, node: Node) -> str:
        """Return the name of a value: the name of its variable in the step or, without one, a name such as `v8`."""
        if node not in self._values:
            name = (node.name or "").lstrip("_")
            if not name.isidentifier():
                name = f"v{name or len(self._values)}"
            if name in _RESERVED:
                name += "_"
            self._values[node] = self._unique(name)
        return self._values[node]

    def internal(self, key: Hashable, label: str) -> str:
        """Return the name of an argument, an address or another object that is not a value.

        Args:
            key: identifies the object.
            label: the name without the underscore at the beginning. If another object has the same label, underscores
                are appended.
        """
        if key not in self._internal:
            self._internal[key] = self._unique(f"_{label}")
        return self._internal[key]

    def _unique(self, name: str) -> str:
        while name in self._taken or name in ENGINE_NAMES:
            name += "_"
        self._taken.add(name)
        return name


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
