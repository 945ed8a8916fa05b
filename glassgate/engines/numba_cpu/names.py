"""Names in printed text: the author's values keep theirs, and all others begin with an underscore."""

import builtins
import keyword
from collections.abc import Hashable

from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import OPERATIONS

CALLS = {"abs": "absolute", "round": "round_even", "pow": "power"}
"""Operations whose function has another name."""
_NOT_FOR_VALUES = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *OPERATIONS, *CALLS.values()}


class Names:
    """The names in one kernel. Values' names never begin with an underscore and all others do, so none collide."""

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
        """The name of anything but a value: an argument, an address."""
        if key not in self._machine:
            self._machine[key] = self._unlike_others(f"_{label}")
        return self._machine[key]

    def _unlike_others(self, name: str) -> str:
        while name in self._taken or name in LOCALS:
            name += "_"
        self._taken.add(name)
        return name


_VARIABLES = (
    "address ahead beside block blocks done first_block here high job last_step live near one packed rank reset row "
    "rows step t then unit waits wide"
)
_FUNCTIONS = (
    "BYTES LANES fetch fill is_reset keep load locate number point put_total round_rows shape_of_tiles store wait words"
)
LOCALS = frozenset(f"_{name}" for name in (*_VARIABLES.split(), *_FUNCTIONS.split()))
"""The names of kernels' own variables and of the functions of the namespace."""
