"""The barrier of kernel B. Programs run at the same time, each in a Python thread, and wait for each other."""

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch

import glassgate as gg
from glassgate.engines.triton_gpu import launch, mathematics, passes
from glassgate.engines.triton_gpu.launch import Blocks, KernelChoice
from tests.compare import check
from tests.engines.triton_gpu.test_layers import run

interpreter = pytest.importorskip("triton.runtime.interpreter")


class Turns:
    """Runs one of several threads at a time, and switches to the next thread at every atomic operation."""

    def __init__(self, count):
        self.may_run = [threading.Semaphore(int(k == 0)) for k in range(count)]
        self.running = [*range(count)]

    def switch(self, k):
        following = self.running[(self.running.index(k) + 1) % len(self.running)]
        self.may_run[following].release()
        self.may_run[k].acquire()

    def end(self, k):
        following = self.running[(self.running.index(k) + 1) % len(self.running)]
        self.running.remove(k)
        self.may_run[following].release()


@pytest.fixture
def programs(monkeypatch):
    """Run the programs of a launch in threads. The fixture is a list with the number of programs of each launch."""
    place, launches = threading.local(), []
    builder = interpreter.interpreter_builder
    atomic = builder.create_atomic_rmw

    def launch(executor, *args, **kwargs):
        function, grid = executor.fn, executor.grid
        kwargs = {key: value for key, value in kwargs.items() if key in inspect.getfullargspec(function).args}
        interpreter._patch_lang(function)
        arguments = inspect.getcallargs(function, *args, **kwargs)
        converted = {k: v if k in executor.constexprs else interpreter._implicit_cvt(v) for k, v in arguments.items()}
        builder.set_grid_dim(*grid)
        each = [*product(*map(range, grid))]
        turns = Turns(len(each))

        def program(k):
            place.at, place.change = each[k], lambda: turns.switch(k)
            turns.may_run[k].acquire()
            try:
                function(**converted)
            finally:
                turns.end(k)

        launches.append(len(each))
        with ThreadPoolExecutor(len(each)) as pool:
            list(pool.map(program, range(len(each))))

    def change(*args):
        value = atomic(*args)
        place.change()
        return value

    monkeypatch.setattr(builder, "create_atomic_rmw", change)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch)
    monkeypatch.setattr(type(builder), "grid_idx", property(lambda _: place.at, lambda *_: None), raising=False)
    return launches


@pytest.mark.parametrize("cell", [gg.cells.LSTM(), gg.cells.GRUv3()], ids=repr)
def test_programs_wait_for_each_other(cell, programs, monkeypatch):
    monkeypatch.setattr(passes, "select_kernel", lambda *_: KernelChoice("grid", 0.0, Blocks(16, 16, 32)))
    truth, eager = (run(cell, "reference", dtype, hidden_size=20) for dtype in (torch.float64, torch.float32))
    check(run(cell, "triton", torch.float32, hidden_size=20), truth, eager)
    assert set(programs) == {4}  # two blocks of units in both directions


def test_a_program_that_waits_too_long_gives_nan(programs, monkeypatch):
    barrier = mathematics.FUNCTIONS["barrier"]
    impatient = barrier.replace("spins < patience", "spins < 0").replace('acq_rel") + 1', 'acq_rel") - 1000000')
    monkeypatch.setitem(mathematics.FUNCTIONS, "barrier", impatient)
    monkeypatch.setattr(launch, "triton_function", launch.triton_function.__wrapped__)
    monkeypatch.setattr(passes, "select_kernel", lambda *_: KernelChoice("grid", 0.0, Blocks(16, 16, 32)))
    with torch.no_grad():
        output, h_n = gg.GRU(3, 20)(torch.randn(3, 3, 3))
    assert h_n.isnan().all()
    assert output[1:].isnan().all()
