"""The same bits on any number of threads, on many more than processors too, for every form of a layer."""

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


def whole(N):
    return lambda layer, x: layer(x[:, :N])


def packed(layer, x):
    output, final = layer(pack_padded_sequence(x, torch.tensor([5, 1, 3, 5, 2, 2, 4, 1, 3]), enforce_sorted=False))
    return output.data, final


def reset(layer, x):
    return layer(x, resets=noise(2, L, x.shape[1]) > 0.8)


FORMS = {
    "rows": (lambda: gg.LSTM(D, 40), whole(9)),
    "units, with a barrier at each step": (lambda: gg.LSTM(D, 200), whole(1)),
    "units of three rows": (lambda: gg.GRU(D, 120, num_layers=2), whole(3)),
    "no rows": (lambda: gg.GRU(D, 40), whole(0)),
    "packed": (lambda: gg.LSTM(D, 40, bidirectional=True), packed),
    "resets": (lambda: gg.RNN(D, 40), reset),
    "projected": (lambda: gg.LSTM(D, 130, proj_size=70, bidirectional=True), whole(2)),
    "sums over units": (lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), D, 90), whole(4)),
    "nothing recurrent": (lambda: gg.Recurrent(gg.cells.MinGRU(), D, 90), whole(1)),
}


def step(layer, call):
    """All that a training step gives, and inference's output; twice, so that the second call is prepared."""
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
def shared(monkeypatch):
    """Threads share the least work; how many launches there were at once."""
    counts, run = [], threads.run
    monkeypatch.setattr(partition, "MIN_WORK_PER_THREAD", 1)
    monkeypatch.setattr(partition, "MIN_WORK_PER_STEP", 1)
    monkeypatch.setattr(processors, "contention", processors.Contention())
    monkeypatch.setattr(processors.contention, "note", lambda waited: None)
    monkeypatch.setattr(threads, "run", lambda launches: (counts.append(len(launches)), run(launches)))
    return counts


@pytest.mark.parametrize("whose", ["torch's", "ours"])
@pytest.mark.parametrize("form", FORMS)
def test_the_bits_of_one_thread(monkeypatch, shared, form, whose):
    if whose == "ours":
        monkeypatch.setattr(openmp, "_openmp", None)
    make, call = FORMS[form]
    layer = make()
    with gg.engine("cpu"):
        expected = step(layer, call)
        assert max(shared, default=1) == 1
        for count in COUNTS:
            torch.set_num_threads(count)
            for one, many in zip(expected, step(layer, call), strict=True):
                assert torch.equal(one, many), (form, count)
            assert (form == "no rows") == (max(shared, default=1) == 1)
            assert max(shared, default=1) <= count


def test_python_threads_that_call_at_once(shared):
    layers = [make() for make, call in FORMS.values() if call is not packed]
    calls = [call for _, call in FORMS.values() if call is not packed]
    with gg.engine("cpu"):
        expected = list(map(step, layers, calls))

    def on_seven(layer, call):
        with gg.engine("cpu"):
            torch.set_num_threads(7)
            return step(layer, call)

    with ThreadPoolExecutor(4) as pool:
        for one, many in zip(expected, pool.map(on_seven, layers, calls), strict=True):
            assert all(map(torch.equal, one, many))
