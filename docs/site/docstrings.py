"""For the reference: `gg.LSTM`, `gg.GRU` and `gg.RNN` with the whole signature and docstring that `help()` shows."""

import inspect
import re
from typing import Any

from griffe import Extension, Module, Object, Parameters, dynamic_import


class AsHelpShows(Extension):
    """Replaces `**options` in the signatures of these three by the arguments of `gg.Recurrent`."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Rewrite the three after the package is read, and convert examples and shapes to Markdown."""
        whole = {each.name: each for each in pkg["layers.stack.Recurrent.__init__"].parameters}
        drop_in = pkg["layers.drop_in"]
        for name in ("LSTM", "GRU", "RNN"):
            drop_in[name].docstring.value = inspect.getdoc(dynamic_import(drop_in[name].path))
        shared = dynamic_import("glassgate.layers.drop_in.Options").__annotations__
        for name in ("_Gated", "RNN"):  # the classes with a constructor; LSTM and GRU inherit theirs
            constructor = drop_in[name]["__init__"]
            own = [each for each in constructor.parameters if each.name != "options"]
            constructor.parameters = Parameters(*own, *(whole[each] for each in shared))
        as_markdown(pkg)


def as_markdown(parent: Object) -> None:
    """Rename each section Example to Examples, where the parser expects code, and format shapes as lists."""
    for each in parent.members.values():
        if not each.is_alias:
            if each.docstring:
                text = each.docstring.value.replace("\n\nExample:\n", "\n\nExamples:\n")
                each.docstring.value = re.sub(r"\n\n(Shapes.*:)\n((?: {4}.*\n?)+)", _listed, text)
            as_markdown(each)


def _listed(section: re.Match[str]) -> str:
    return f"\n\n{section[1]}\n\n" + re.sub(r"^ {4}(?=\S)", "- ", section[2], flags=re.MULTILINE)
