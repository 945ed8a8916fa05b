"""What a kernel must survive: threads, forks, caches that fail, and numbers that are not."""

import gc
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import glassgate as gg
from glassgate.engines.llvm_cpu import forward, passes
from glassgate.engines.llvm_cpu.pool import openmp
from tests.compare import noise

H = 96
"""Wide enough, with 40 steps of 32 rows, for two threads."""


def layer():
    module = gg.LSTM(8, H)
    with torch.no_grad():
        for k, parameter in enumerate(module.parameters()):
            parameter.copy_(noise(k, *parameter.shape) * H**-0.5)
    return module


def call(seed=0):
    """One training step; its output and the gradient of a weight."""
    module, x = layer(), noise(seed, 40, 32, 8).float()
    with gg.engine("cpu"):
        output, _ = module(x)
        output.square().mean().backward()
    return output.detach(), module.weight_hh_l0.grad


def same(a, b):
    return all(map(torch.equal, a, b))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_repeated_calls_and_thread_counts_give_the_same_bits(two_threads):
    first, again = call(), call()
    torch.set_num_threads(1)
    alone = call()
    assert same(first, again)
    assert same(first, alone)


@pytest.mark.parametrize("N", [1, 3])
def test_threads_that_share_the_units_of_few_rows_give_the_same_bits(two_threads, N):
    module, x = gg.GRU(8, 400), noise(1, 9, N, 8).float()
    outputs = []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        with gg.engine("cpu"):
            outputs.append(module(x)[0].detach())
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


def test_threads_of_our_own_are_as_many_as_torch_allows():
    code = """
import threading, torch
from glassgate.engines import processors
from tests.engines.llvm_cpu.test_survival import call
processors.available = lambda: 2
for threads in (1, 2, 1):
    torch.set_num_threads(threads)
    call()
    print(sum(t.name == "glassgate" for t in threading.enumerate()))
"""
    assert python(code).split() == ["0", "1", "1"]


def test_two_threads_calling_at_once(two_threads):
    wanted = [call(0), call(1)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert all(map(same, pool.map(call, (0, 1)), wanted))


class Rows(torch.utils.data.Dataset):
    """A kernel runs in the process that reads an item."""

    def __len__(self):
        return 3

    def __getitem__(self, k):
        return call(k)[0].sum()


def test_forked_workers_of_a_loader(two_threads):
    wanted = [call(k)[0].sum() for k in range(3)]
    loader = torch.utils.data.DataLoader(Rows(), batch_size=1, num_workers=2, multiprocessing_context="fork")
    assert [row.item() for row in loader] == pytest.approx([w.item() for w in wanted])


def in_one_thread(k):
    torch.set_num_threads(1)
    return call(k)[0].sum().item()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(two_threads, method):
    wanted = call(1)[0].sum().item()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(in_one_thread, [1, 1])) == pytest.approx([wanted] * 2)


def python(code, **environment):
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        # Whose threads work, and so which kernels there are, does not depend on how busy the machine is.
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


INTERRUPTED = """
import gc, os, signal, time
import llvmlite.binding as llvm
from tests.engines.llvm_cpu.test_survival import call

add, interrupts = llvm.ExecutionEngine.add_object_file, []
def interrupted(engine, code):
    add(engine, code)
    if not interrupts:
        interrupts.append(os.kill(os.getpid(), signal.SIGINT))
        time.sleep(0.05)

llvm.ExecutionEngine.add_object_file = interrupted
try:
    call()
except KeyboardInterrupt:
    gc.collect()
    print(call()[0].sum().item())
"""


def test_an_interrupt_while_a_kernel_is_loaded_breaks_nothing():
    assert float(python(INTERRUPTED)) == pytest.approx(call()[0].sum().item())


def small_call():
    """Inference with the kernel that compiles fastest."""
    torch.manual_seed(0)
    with gg.engine("cpu"), torch.no_grad():
        return gg.RNN(2, 3)(noise(1, 4, 2, 2).float())[0].sum().item()


SUM = "from tests.engines.llvm_cpu.test_survival import small_call; print(small_call())"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache folder with the kernel of `small_call` in it, and the sum."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, python(SUM, GLASSGATE_CACHE=str(folder))


@pytest.fixture
def kept(compiled, tmp_path):
    """A copy of that folder, which a test may damage."""
    folder, wanted = compiled
    return shutil.copytree(folder, tmp_path / "cache"), wanted


def test_missing_cache(tmp_path):
    folder = tmp_path / "not" / "there"
    python(SUM, GLASSGATE_CACHE=str(folder))
    assert list(folder.glob("*.kernel"))


def test_kept_kernels_need_no_compiler(kept):
    folder, wanted = kept
    assert (
        python(
            f"{SUM}; import sys; assert 'glassgate.engines.llvm_cpu.simd.translate' not in sys.modules",
            GLASSGATE_CACHE=str(folder),
        )
        == wanted
    )


@pytest.mark.parametrize("length", [0, 10, 500])
def test_truncated_files(kept, length):
    folder, wanted = kept
    sizes = {file: file.stat().st_size for file in folder.glob("*.kernel")}
    for file in sizes:
        file.write_bytes(file.read_bytes()[:length])
    assert python(SUM, GLASSGATE_CACHE=str(folder)) == wanted
    assert {file: file.stat().st_size for file in folder.glob("*.kernel")} == sizes


def test_cache_that_cannot_be_written(tmp_path):
    file = tmp_path / "file"
    file.touch()
    python(SUM, GLASSGATE_CACHE=str(file / "folder"))


def test_full_disk(tmp_path):
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    python(full + SUM, GLASSGATE_CACHE=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_two_processes_compiling_at_once(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda _: python(SUM, GLASSGATE_CACHE=str(tmp_path)), range(2)))
    assert outputs[0] == outputs[1]
    assert all(file.suffix == ".kernel" for file in tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1e30])
def test_nan_and_infinity(kind, value):
    ours, theirs = getattr(gg, kind)(3, 5), getattr(torch.nn, kind)(3, 5)
    theirs.load_state_dict(ours.state_dict())
    x = noise(2, 4, 2, 3).float()
    x[1, 0, 1] = value
    with gg.engine("cpu"):
        output, _ = ours(x)
    torch.testing.assert_close(output, theirs(x)[0], equal_nan=True, rtol=1e-5, atol=1e-6)


def test_inputs_that_are_views():
    module, x = layer(), noise(3, 2 * 7, 8, 5).float()
    view = x[::2].transpose(1, 2)
    with gg.engine("cpu"):
        assert torch.equal(module(view)[0], module(view.contiguous())[0])


def test_no_rows():
    with gg.engine("cpu"):
        output, (h_n, c_n) = layer()(torch.zeros(4, 0, 8))
    assert (output.shape, h_n.shape, c_n.shape) == ((4, 0, H), (1, 0, H), (1, 0, H))


def test_streams_and_sessions_keep_the_memory_that_their_kernels_read():
    """A layer without biases reads zeros that belong to its plan. Caches drop the plans of a process that has many."""
    module, x = gg.RNN(2, 3, bias=False), noise(1, 4, 2, 2).float()
    with gg.engine("cpu"), torch.no_grad():
        expected = module(x)[0]
        session, stream = gg.freeze(module), module.stream(2)
        session(x)
        for cache in (passes.cached_forward_pass, forward.cached_forward):
            cache.cache_clear()
        gc.collect()
        junk = [torch.full((n,), 1e3, dtype=torch.float64) for n in range(1, 99) for _ in range(9)]
        torch.testing.assert_close(session(x)[0], expected)
        torch.testing.assert_close(torch.stack([stream.step(step).clone() for step in x]), expected)
    assert junk


def test_waiting_workers_sleep(two_threads, monkeypatch):
    monkeypatch.setattr(openmp, "_openmp", None)
    call()
    assert {t.daemon for t in threading.enumerate() if t.name == "glassgate"} == {True}
