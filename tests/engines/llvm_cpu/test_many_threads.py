"""Results are bitwise equal for any number of threads, even for many more threads than processors."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import glassgate as gg
from glassgate.engines import processors
from glassgate.engines.llvm_cpu import partition
from glassgate.engines.llvm_cpu.pool import openmp, threads
from tests.compare import noise

COUNTS = (2, 3, 4, 7, 16, 64)
L, D = 5, 3


def equal_lengths(N):
    return lambda layer, x: layer(x[:, :N])


def packed(layer, x):
    output, final = layer(pack_padded_sequence(x, torch.tensor([5, 1, 3, 5, 2, 2, 4, 1, 3]), enforce_sorted=False))
    return output.data, final


def with_resets(layer, x):
    return layer(x, resets=noise(2, L, x.shape[1]) > 0.8)


FORMS = {
    "divided sequences": (lambda: gg.LSTM(D, 40), equal_lengths(9)),
    "divided units of one sequence": (lambda: gg.LSTM(D, 200), equal_lengths(1)),
    "divided units of three sequences": (lambda: gg.GRU(D, 120, num_layers=2), equal_lengths(3)),
    "no sequences": (lambda: gg.GRU(D, 40), equal_lengths(0)),
    "packed": (lambda: gg.LSTM(D, 40, bidirectional=True), packed),
    "resets": (lambda: gg.RNN(D, 40), with_resets),
    "projection": (lambda: gg.LSTM(D, 130, proj_size=70, bidirectional=True), equal_lengths(2)),
    "sums over units": (lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), D, 90), equal_lengths(4)),
    "no recurrent product": (lambda: gg.Recurrent(gg.cells.MinGRU(), D, 90), equal_lengths(1)),
}


def results_of(layer, call):
    """Results and gradients of a training call, and the output of an inference call.

    Each call is made twice, because the second call is prepared.
    """
    x, results = noise(1, L, 9, D).float().requires_grad_(), []
    for _ in range(2):
        output, final = call(layer, x)
        final = final if isinstance(final, tuple) else (final,)
        loss = output.sin().sum() + sum(v.sum() for v in final)
        results += [output, *final, *torch.autograd.grad(loss, [x, *layer.parameters()])]
        with torch.no_grad():
            results.append(call(layer, x)[0])
    return results


@pytest.fixture
def launch_counts(monkeypatch):
    """Make threads divide even small calls. The list receives the number of launches of each round."""
    counts, run = [], threads.run
    monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
    monkeypatch.setattr(partition, "MIN_WORK_PER_STEP", 1)
    monkeypatch.setattr(processors, "contention", processors.Contention())
    monkeypatch.setattr(processors.contention, "note", lambda waited: None)
    monkeypatch.setattr(threads, "run", lambda launches: (counts.append(len(launches)), run(launches)))
    return counts


@pytest.mark.parametrize("pool", ["torch's", "own"])
@pytest.mark.parametrize("form", FORMS)
def test_results_are_bitwise_equal_to_those_of_one_thread(monkeypatch, launch_counts, form, pool):
    if pool == "own":
        monkeypatch.setattr(openmp, "_openmp", None)
    make, call = FORMS[form]
    layer = make()
    with gg.engine("cpu"):
        expected = results_of(layer, call)
        assert max(launch_counts, default=1) == 1
        for count in COUNTS:
            torch.set_num_threads(count)
            for one, many in zip(expected, results_of(layer, call), strict=True):
                assert torch.equal(one, many), (form, count)
            assert (form == "no sequences") == (max(launch_counts, default=1) == 1)
            assert max(launch_counts, default=1) <= count


def test_results_are_bitwise_equal_if_several_python_threads_call_layers(launch_counts):
    layers = [make() for make, call in FORMS.values() if call is not packed]
    calls = [call for _, call in FORMS.values() if call is not packed]
    with gg.engine("cpu"):
        expected = list(map(results_of, layers, calls))

    def results_on_seven_threads(layer, call):
        with gg.engine("cpu"):
            torch.set_num_threads(7)
            return results_of(layer, call)

    with ThreadPoolExecutor(4) as pool:
        for one, many in zip(expected, pool.map(results_on_seven_threads, layers, calls), strict=True):
            assert all(map(torch.equal, one, many))
