"""The translator of kernels: a kernel computes the same as Python, and other statements raise an error."""

from array import array

import pytest

from glassgate.engines.llvm_cpu.compile import compile_module, load
from glassgate.engines.llvm_cpu.simd.instructions import words
from glassgate.engines.llvm_cpu.simd.translate import translate


def early(numbers, limit):
    """Replace the first number above the limit, and stop there."""
    for k in range(5):
        if numbers[k] > limit:
            numbers[k] = -limit
            return


TEXT = '''
def run(address):
    """Use all statements and operators of kernels on integers."""
    given, out = words(address), words(address + 64)
    a, b, c = given[0], given[1], given[2]
    out[0], out[1], out[2], out[3] = a // 8, a % 8, a // b, a % b
    out[4] = a // SEVEN + a % SEVEN
    low, high = (a, b) if a < b else (b, a)
    out[5] = low * 100 + high
    # If the second condition were evaluated, it would read memory far from the array.
    out[6] = 1 if c == 0 or given[FAR] > 0 else 2
    out[7] = 3 if not (c != 0 and given[FAR] > 0) else 4
    total, k = 0, 5
    for n in range(10, -3, -3):
        k = k - 1
        total += n * n if n % 2 == 0 else -n
    out[8], out[9] = total, k
    while True:
        total //= 2
        if total < 3:
            k = total
            early(out, 20)
            return
'''


class Memory(list):
    """A list of integers that raises an error for an index far from it."""

    def __getitem__(self, k):
        return super().__getitem__(k) if k < 100 else 1 // 0


@pytest.mark.parametrize(("a", "b"), [(29, 5), (-29, 5), (29, -5), (-29, -5), (-32, 8)])
def test_a_kernel_computes_the_same_as_python(a, b):
    names = {"words": words, "early": early, "SEVEN": 7, "FAR": 10**12}
    job = array("q", [a, b, *[0] * 16])
    load(compile_module(translate(TEXT, "run", names)), "run")(job.buffer_info()[0])
    memory = {0: Memory([a, b, *[0] * 6]), 64: Memory([0] * 10)}
    expected = names | {"words": memory.__getitem__}
    exec(TEXT, expected)
    expected["run"](0)
    assert job[8:].tolist() == list(memory[64])


def test_unsupported_statements_operators_and_functions_raise_an_error():
    with pytest.raises(TypeError, match="kernels cannot contain `with x:"):
        translate("def run(address):\n    with x:\n        pass\n", "run", {})
    with pytest.raises(TypeError, match=r"kernels cannot contain `address \*\* 2`"):
        translate("def run(address):\n    address = address**2\n", "run", {})
    with pytest.raises(TypeError, match=r"kernels cannot call <function sorted|kernels cannot call <built-in"):
        translate("def run(address):\n    sorted(address)\n", "run", {})
