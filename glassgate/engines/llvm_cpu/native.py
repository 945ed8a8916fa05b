"""Kernels that do not depend on the cell. Their source is a constant string."""

from functools import cache, lru_cache

from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.compile import Function, compile_kernel
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.sizes import Arithmetic


def compile_native(text: str, bits: int = 64, arithmetic: Arithmetic = Arithmetic.FULL, **values: int) -> Function:
    """Compile a function from its text. Its parameters become the fields of a record, see `with_fields`.

    Args:
        text: the function as Python code. `{NAME}` is replaced by a value.
        bits: the size of a number in a vector.
        arithmetic: the method of multiplication.
        values: the value of each `NAME`.
    """
    return _native(text, bits, tuple(values.items()), processor_for(arithmetic))


@cache
def _native(text: str, bits: int, values: tuple[tuple[str, int], ...], processor: Processor) -> Function:
    for name, value in values:
        text = text.replace(f"{{{name}}}", str(value))
    text = with_fields(text)
    return compile_kernel(text, text.split("(")[0].removeprefix("\ndef "), bits, processor)


@lru_cache(64)
def with_fields(text: str) -> str:
    """Change a function so that its only parameter is the address of a record with the values of its parameters.

    A parameter `x` becomes a 64-bit word of the record. `x: words` becomes the array at the address in a word. `*x`,
    the last parameter, becomes the array of all remaining words. A function of one parameter is not changed: its
    parameter is already an address.
    """
    head, rest = text.split("):\n", 1)
    name, _, parameters = head.partition("(")
    if "," not in parameters:
        return text
    lines = ["job = words(address)"]
    for k, parameter in enumerate(parameters.split(", ")):
        field, _, kind = parameter.partition(": ")
        if field.startswith("*"):
            lines.append(f"{field[1:]} = words(address + {8 * k})")
        else:
            lines.append(f"{field} = {f'{kind}(job[{k}])' if kind else f'job[{k}]'}")
    description, quotes, body = rest.partition('"""\n') if rest.startswith('    """') else ("", "", rest)
    return f"{name}(address):\n{description}{quotes}" + "".join(f"    {line}\n" for line in lines) + body
