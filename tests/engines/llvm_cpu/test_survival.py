"""Kernels under unusual conditions: threads, forks, interrupts, unusable caches, NaN and infinite inputs."""

import gc
import multiprocessing
import shutil
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import cycle

import pytest
import torch

import glassgate as gg
from glassgate.engines.llvm_cpu import forward, passes
from glassgate.engines.llvm_cpu.pool import openmp
from tests.compare import noise
from tests.forked import run_python

H = 96
"""A hidden size at which two threads divide 40 steps of 32 rows."""


def make_layer():
    module = gg.LSTM(8, H)
    with torch.no_grad():
        for k, parameter in enumerate(module.parameters()):
            parameter.copy_(noise(k, *parameter.shape) * H**-0.5)
    return module


def call(seed=0):
    """Run a training call. Return its output and the gradient of a weight."""
    module, x = make_layer(), noise(seed, 40, 32, 8).float()
    with gg.engine("cpu"):
        output, _ = module(x)
        output.square().mean().backward()
    return output.detach(), module.weight_hh_l0.grad


def are_equal(a, b):
    return all(map(torch.equal, a, b))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_repeated_calls_and_calls_on_one_thread_are_bitwise_equal(two_threads):
    first, repeated = call(), call()
    torch.set_num_threads(1)
    on_one_thread = call()
    assert are_equal(first, repeated)
    assert are_equal(first, on_one_thread)


@pytest.mark.parametrize("N", [1, 3])
def test_results_are_bitwise_equal_if_threads_divide_the_units(two_threads, N):
    module, x = gg.GRU(8, 400), noise(1, 9, N, 8).float()
    outputs = []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        with gg.engine("cpu"):
            outputs.append(module(x)[0].detach())
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


def test_the_thread_pool_has_one_thread_less_than_torch_allows():
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
    assert run(code).split() == ["0", "1", "1"]


def test_two_python_threads_call_at_the_same_time(two_threads):
    expected = [call(0), call(1)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert all(map(are_equal, pool.map(call, (0, 1)), expected))


class SumsOfOutputs(torch.utils.data.Dataset):
    """A data set whose items are computed by kernels, in the process that loads them."""

    def __len__(self):
        return 3

    def __getitem__(self, k):
        return call(k)[0].sum()


def test_forked_workers_of_a_data_loader(two_threads):
    expected = [call(k)[0].sum().item() for k in range(3)]
    loader = torch.utils.data.DataLoader(SumsOfOutputs(), batch_size=1, num_workers=2, multiprocessing_context="fork")
    assert [item.item() for item in loader] == pytest.approx(expected)


def sum_on_one_thread(seed):
    torch.set_num_threads(1)
    return call(seed)[0].sum().item()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_pools(two_threads, method):
    expected = call(1)[0].sum().item()
    with ProcessPoolExecutor(2 if method == "fork" else 1, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(sum_on_one_thread, [1, 1])) == pytest.approx([expected] * 2)


def run(code, **environment):
    # With this setting the package's own threads always run the launches, also without CPU contention. The compiled
    # kernels are then the same in every run.
    completed = run_python("-c", code, **{"OMP_WAIT_POLICY": "PASSIVE"} | environment)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


INTERRUPTED = """
import gc, os, signal, time
import llvmlite.binding as llvm
from tests.engines.llvm_cpu.test_survival import call

add_object_file, interrupts = llvm.ExecutionEngine.add_object_file, []
def add_object_file_and_interrupt(engine, code):
    add_object_file(engine, code)
    if not interrupts:
        interrupts.append(os.kill(os.getpid(), signal.SIGINT))
        time.sleep(0.05)

llvm.ExecutionEngine.add_object_file = add_object_file_and_interrupt
try:
    call()
except KeyboardInterrupt:
    gc.collect()
    print(call()[0].sum().item())
"""


def test_calls_after_an_interrupt_while_a_kernel_is_loaded():
    assert float(run(INTERRUPTED)) == pytest.approx(call()[0].sum().item())


def small_call():
    """Run an inference call of a layer whose kernel compiles fast."""
    torch.manual_seed(0)
    with gg.engine("cpu"), torch.no_grad():
        return gg.RNN(2, 3)(noise(1, 4, 2, 2).float())[0].sum().item()


SUM = "from tests.engines.llvm_cpu.test_survival import small_call; print(small_call())"


@pytest.fixture(scope="module")
def filled_cache(tmp_path_factory):
    """A cache folder with the kernels of `small_call`, and the sum. The process with the call creates the folder."""
    folder = tmp_path_factory.mktemp("cache") / "not" / "there"
    return folder, run(SUM, GLASSGATE_CACHE=str(folder))


@pytest.fixture
def cache_copy(filled_cache, tmp_path):
    """A copy of the folder of `filled_cache`, which a test may damage, and the sum."""
    folder, expected = filled_cache
    return shutil.copytree(folder, tmp_path / "cache"), expected


def test_missing_cache_folder_is_created(filled_cache):
    folder, _ = filled_cache
    assert list(folder.glob("*.kernel"))


def test_cached_kernels_need_no_compiler(cache_copy):
    folder, expected = cache_copy
    code = f"{SUM}; import sys; assert 'glassgate.engines.llvm_cpu.simd.translate' not in sys.modules"
    assert run(code, GLASSGATE_CACHE=str(folder)) == expected


def truncated(contents):
    """Return contents of different lengths."""
    lengths = (0, 10, 500)
    assert len(contents) >= len(lengths)
    return [content[:length] for content, length in zip(contents, cycle(lengths), strict=False)]


def with_a_flipped_bit(contents):
    return [content[:-200] + bytes([content[-200] ^ 1]) + content[-199:] for content in contents]


def in_another_order(contents):
    return [*contents[1:], contents[0]]


@pytest.mark.parametrize("damage", [truncated, with_a_flipped_bit, in_another_order])
def test_damaged_and_exchanged_files_are_replaced(cache_copy, damage):
    folder, expected = cache_copy
    contents = {file: file.read_bytes() for file in folder.glob("*.kernel")}
    for file, content in zip(contents, damage([*contents.values()]), strict=True):
        file.write_bytes(content)
    assert run(SUM, GLASSGATE_CACHE=str(folder)) == expected
    assert {file: file.stat().st_size for file in folder.glob("*.kernel")} == {
        file: len(content) for file, content in contents.items()
    }


def test_calls_without_a_writable_cache(tmp_path):
    file = tmp_path / "file"
    file.touch()
    run(SUM, GLASSGATE_CACHE=str(file / "folder"))


def test_no_file_remains_if_the_disk_is_full(tmp_path):
    limit_file_size = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    run(limit_file_size + SUM, GLASSGATE_CACHE=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_two_processes_compile_at_the_same_time(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda _: run(SUM, GLASSGATE_CACHE=str(tmp_path)), range(2)))
    assert outputs[0] == outputs[1]
    assert all(file.suffix == ".kernel" for file in tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1e30])
def test_nan_infinite_and_large_inputs(kind, value):
    layer, torch_layer = getattr(gg, kind)(3, 5), getattr(torch.nn, kind)(3, 5)
    torch_layer.load_state_dict(layer.state_dict())
    x = noise(2, 4, 2, 3).float()
    x[1, 0, 1] = value
    with gg.engine("cpu"):
        output, _ = layer(x)
    torch.testing.assert_close(output, torch_layer(x)[0], equal_nan=True, rtol=1e-5, atol=1e-6)


def test_input_that_is_a_view():
    module, x = make_layer(), noise(3, 2 * 7, 8, 5).float()
    view = x[::2].transpose(1, 2)
    with gg.engine("cpu"):
        assert torch.equal(module(view)[0], module(view.contiguous())[0])


def test_empty_batch():
    with gg.engine("cpu"):
        output, (h_n, c_n) = make_layer()(torch.zeros(4, 0, 8))
    assert (output.shape, h_n.shape, c_n.shape) == ((4, 0, H), (1, 0, H), (1, 0, H))


def test_streams_and_sessions_own_the_memory_that_their_kernels_read():
    """A layer without biases reads zeros that its plan owns. A full cache drops plans."""
    module, x = gg.RNN(2, 3, bias=False), noise(1, 4, 2, 2).float()
    with gg.engine("cpu"), torch.no_grad():
        expected = module(x)[0]
        session, stream = gg.freeze(module), module.stream(2)
        session(x)
        for cache in (passes.cached_forward_pass, forward.cached_forward_plan):
            cache.cache_clear()
        gc.collect()
        overwriting = [torch.full((n,), 1e3, dtype=torch.float64) for n in range(1, 99) for _ in range(9)]
        torch.testing.assert_close(session(x)[0], expected)
        torch.testing.assert_close(torch.stack([stream.step(step).clone() for step in x]), expected)
    assert overwriting


def test_threads_of_the_pool_are_daemons(two_threads, monkeypatch):
    monkeypatch.setattr(openmp, "_openmp", None)
    call()
    assert {t.daemon for t in threading.enumerate() if t.name == "glassgate"} == {True}
