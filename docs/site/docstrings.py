"""Shows `gg.LSTM`, `gg.GRU` and `gg.RNN` in the reference with the signatures and docstrings that `help()` shows."""

import inspect
import re
from typing import Any

from griffe import Extension, Module, Object, Parameters, dynamic_import


class AsHelpShows(Extension):
    """Replaces `**options` in the signatures of the three classes by the arguments of `gg.Recurrent`."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Change the three classes after the package is read, and convert examples and shapes to Markdown."""
        parameters = {p.name: p for p in pkg["layers.stack.Recurrent.__init__"].parameters}
        drop_in = pkg["layers.drop_in"]
        for name in ("LSTM", "GRU", "RNN"):
            drop_in[name].docstring.value = inspect.getdoc(dynamic_import(drop_in[name].path))
        shared = dynamic_import("glassgate.layers.drop_in.Options").__annotations__
        for name in ("_Gated", "RNN"):  # the classes with a constructor; LSTM and GRU inherit theirs
            constructor = drop_in[name]["__init__"]
            own = [parameter for parameter in constructor.parameters if parameter.name != "options"]
            constructor.parameters = Parameters(*own, *(parameters[name] for name in shared))
        convert_to_markdown(pkg)


def convert_to_markdown(parent: Object) -> None:
    """Rename sections from Example to Examples, in which the parser expects code, and format shapes as lists."""
    for member in parent.members.values():
        if not member.is_alias:
            if member.docstring:
                text = member.docstring.value.replace("\n\nExample:\n", "\n\nExamples:\n")
                member.docstring.value = re.sub(r"\n\n(Shapes.*:)\n((?: {4}.*\n?)+)", _as_list, text)
            convert_to_markdown(member)


def _as_list(section: re.Match[str]) -> str:
    return f"\n\n{section[1]}\n\n" + re.sub(r"^ {4}(?=\S)", "- ", section[2], flags=re.MULTILINE)
