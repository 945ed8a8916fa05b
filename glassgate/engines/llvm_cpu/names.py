"""Names in printed kernels. Values keep the author's names. All other names begin with an underscore."""

import builtins
import keyword
from collections.abc import Hashable

from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import OPERATIONS

CALLS = {"abs": "absolute", "round": "round_even", "pow": "power"}
"""Operations whose function has another name."""
_NOT_FOR_VALUES = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *OPERATIONS, *CALLS.values()}


class Names:
    """The names in one kernel. Names of values do not begin with an underscore and all others do, so none collide."""

    def __init__(self) -> None:
        self._values: dict[Node, str] = {}
        self._machine: dict[Hashable, str] = {}
        self._taken: set[str] = set()

    def value(self, node: Node) -> str:
        """The author's name for a value, or a number."""
        if node not in self._values:
            name = (node.name or "").lstrip("_")
            if not name.isidentifier():
                name = f"v{name or len(self._values)}"
            if name in _NOT_FOR_VALUES:
                name += "_"
            self._values[node] = self._unlike_others(name)
        return self._values[node]

    def machine(self, key: Hashable, label: str) -> str:
        """The name of an argument, an address or another object that is not a value."""
        if key not in self._machine:
            self._machine[key] = self._unlike_others(f"_{label}")
        return self._machine[key]

    def _unlike_others(self, name: str) -> str:
        while name in self._taken or name in LOCALS:
            name += "_"
        self._taken.add(name)
        return name


_VARIABLES = (
    "address ahead block blocks done end first_block first_row from job live n previous reset rows step t tile_block "
    "tile_blocks tile_row tile_rows tile_start to unit waits weights"
)
_FUNCTIONS = (
    "BYTES LANES fetch fill is_reset keep load locate number point put_total round_rows shape_of_tiles store wait words"
)
LOCALS = frozenset(f"_{name}" for name in (*_VARIABLES.split(), *_FUNCTIONS.split()))
"""The names of the variables of kernels and of the functions of the namespace."""
