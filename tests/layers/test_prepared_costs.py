"""What prepared calls cost and keep: the number of functions and of signatures, names in profiles, and memory."""

import copy
import pickle
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import glassgate as gg
from glassgate.engines.llvm_cpu import workspace
from glassgate.layers import prepared_calls
from tests.layers.test_prepared_calls import call, noise, prepared, same


def test_the_number_of_prepared_signatures_is_limited(monkeypatch):
    monkeypatch.setattr(prepared_calls, "MAX_SIGNATURES", 2)
    layer = gg.LSTM(6, 5).eval()
    for L in (20, 30, 40, 50, 20, 50):
        x = noise(L, L, 2, 6)
        first = call(layer, x, learns=False)
        for _ in range(3):
            same(call(layer, x, learns=False), first)
    assert len(prepared(layer)) == 2


FUNCTIONS = {
    "plain": ({}, {}, 7, 14),
    "lengths": ({}, {"lengths": [5, 3]}, 12, 19),
    "resets": ({}, {"resets": torch.zeros(5, 2, dtype=torch.bool)}, 7, 14),
    "residual": ({"num_layers": 2, "residual": True}, {}, 10, 22),
    "dropout": ({"num_layers": 2, "dropout": 0.5}, {}, 10, 22),
    "two layers, two directions": ({"num_layers": 2, "bidirectional": True}, {}, 10, 22),
}
"""The options of a layer, those of a call, and the largest numbers of our functions in inference and in training."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_prepared_call_passes_through_few_functions(monkeypatch, name, threads):
    """Each function takes a tenth of a microsecond or more, and the kernels of a short call take a few."""
    options, more, in_inference, in_training = FUNCTIONS[name]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    layer, x, called = gg.LSTM(8, 8, **options), noise(1, 5, 2, 8), []

    def profile(frame, event, argument):
        if event == "call" and package in frame.f_code.co_filename:
            called.append(frame.f_code.co_qualname)

    package = str(Path(gg.__file__).parent)
    for learns, limit in ((False, in_inference), (True, in_training)):
        with torch.set_grad_enabled(learns), torch.autograd.set_multithreading_enabled(False):
            for _ in range(3):
                layer(x, **more)[0].sum().backward() if learns else layer(x, **more)
            called.clear()
            sys.setprofile(profile)
            output, _ = layer(x, **more)
            if learns:
                output.sum().backward()
            sys.setprofile(None)
        assert prepared(layer)
        assert 5 < len(called) <= limit, (len(called), called)


@pytest.mark.parametrize("training", [False, True])
def test_a_profile_names_the_layer(training):
    """The general path and prepared calls have a row in the profile, which covers only the call."""
    layer, x = gg.LSTM(6, 5, num_layers=2), noise(1, 4, 2, 6)
    with torch.profiler.profile() as profile, torch.set_grad_enabled(training):
        for _ in range(4):
            layer(x)
        gg.GRU(6, 5, bidirectional=True)(x, lengths=[4, 2])
        gg.Recurrent(gg.cells.PeepholeLSTM(), 6, 5)(x)
    assert prepared(layer)
    rows = {
        row.key: row.count for row in profile.key_averages() if row.key.startswith("glassgate::") and "(" in row.key
    }
    assert rows == {
        "glassgate::LSTM(6, 5)x2": 4,
        "glassgate::GRU(6, 5, bidirectional)": 1,
        "glassgate::PeepholeLSTM(6, 5)": 1,
    }


@pytest.mark.parametrize("options", [{}, {"zoneout": 0.5}])
def test_prepared_calls_do_not_keep_tensors_of_calls(options):
    layer = gg.LSTM(6, 5, **options)
    seen = []
    for _ in range(3):
        x, hx = noise(1, 40, 3, 6).requires_grad_(), (noise(2, 1, 3, 5), noise(3, 1, 3, 5))
        layer(x, hx, resets=torch.zeros(40, 3, dtype=torch.bool))
        seen += [weakref.ref(v) for v in (x, *hx)]
    del x, hx
    assert prepared(layer)
    assert not any(ref() is not None for ref in seen)


def test_a_copy_has_no_prepared_calls_and_threads_share_them():
    layer, x = gg.LSTM(6, 5).eval(), noise(1, 40, 3, 6)
    for _ in range(3):
        expected = call(layer, x, learns=False)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert not prepared(other)
        same(call(other, x, learns=False), expected)
    results = []
    threads = [
        threading.Thread(target=lambda: results.extend(call(layer, x, learns=False) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200
    for each in results:
        same(each, expected)


@pytest.mark.parametrize("size", [10, 5_000, workspace.MAX_KEPT_BYTES + 1])
def test_a_call_allocates_only_the_memory_that_it_needs(size):
    address, memory = workspace.borrow(size)
    assert memory is not None
    assert memory.data_ptr() <= address <= address + size <= memory.data_ptr() + memory.numel()
    assert size <= workspace.MAX_KEPT_BYTES or memory.numel() < 2 * size


@pytest.mark.parametrize("which", ["input", "weights", "part of them"])
@pytest.mark.parametrize("calls", [0, 3])
def test_a_tensor_whose_storage_was_freed_is_an_error(which, calls):
    layer, x = gg.LSTM(6, 5), noise(90, 7, 3, 6)
    whole = torch.zeros(10**6 + layer.weight_hh_l0.numel())
    layer.weight_hh_l0.data = whole[10**6 :].view_as(
        layer.weight_hh_l0
    )  # parameters of sharded training share one storage
    with torch.no_grad():
        for _ in range(calls):
            layer(x)
        freed = {"input": x, "weights": layer.weight_ih_l0, "part of them": whole}[which]
        freed.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="has no memory: its storage was freed"):
            layer(x)


def test_a_checkpoint_saves_the_same_tensors_when_it_recomputes():
    x = noise(80, 6, 3, 4).requires_grad_()
    for layer in (gg.LSTM(4, 5), gg.GRUCell(4, 5), gg.GRU(4, 5, 2, bidirectional=True)):
        data = x[0] if isinstance(layer, gg.GRUCell) else x
        for _ in range(4):  # the general path, then prepared calls
            again = checkpoint(lambda v, layer=layer: layer(v)[0].sin().sum(), data, use_reentrant=False)
            plain = layer(data)[0].sin().sum()
            torch.testing.assert_close(torch.autograd.grad(again, x), torch.autograd.grad(plain, x))
