"""Prepared calls with lengths and packed sequences of cells that declare axes equal those of the general path."""

import pytest
import torch

import glassgate as gg
from tests.layers.test_prepared_calls import ARRAY_LAYERS, call, noise, prepared
from tests.layers.test_prepared_sequences import packed_call

NAMES = [name for name in ARRAY_LAYERS if name != "large products"]


def made(name, dtype=torch.float64):
    """Create a layer and random initial states of four sequences."""
    layer = ARRAY_LAYERS[name]().to(dtype)
    with torch.no_grad():
        _, final = layer(torch.zeros(4, 4, layer.input_size, dtype=dtype))
    return layer, tuple([noise(2 + k, *v.shape).to(dtype).requires_grad_() for k, v in enumerate(final)])


def near(results, expected):
    """Compare results in float64 whose sums over the steps may have another order."""
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_prepared_calls_with_lengths_equal_the_general_path(name, learns):
    layer, states = made(name)
    x = noise(1, *((4, 9) if layer.batch_first else (9, 4)), layer.input_size).double().requires_grad_()
    for hx in (None, states):
        for lengths in ([7, 0, 3, 9], torch.tensor([2, 5, 5, 1]), [0, 0, 0, 0], [9, 9, 9, 9]):
            layer.glassgate.prepared_calls.forget()
            expected = call(layer, x, hx, learns, lengths=lengths)
            assert not prepared(layer)
            for _ in range(2):
                near(call(layer, x, hx, learns, lengths=lengths), expected)
            assert len(prepared(layer)) == 1
            other = [1, 9, 0, 4]
            results = call(layer, x, hx, learns, lengths=other)
            layer.glassgate.prepared_calls.forget()
            near(results, call(layer, x, hx, learns, lengths=other))
    for _ in range(3):
        with pytest.raises(gg.ShapeError, match="lengths must be between 0 and L = 9"):
            layer(x, lengths=[1, 2, 10, 3])


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "batch first"])
def test_packed_sequences_equal_the_general_path(name, learns):
    layer, states = made(name)
    x, D = noise(1, 9, 4, layer.input_size).double().requires_grad_(learns), layer.input_size
    states = tuple([v.detach().requires_grad_(learns) for v in states])
    for hx in (None, states):
        for lengths in ([3, 9, 7, 1], [9, 7, 4, 1], [9, 9, 9, 9]):
            layer.glassgate.prepared_calls.forget()
            expected = packed_call(layer, x, hx, lengths, learns)
            for _ in range(2):
                near(packed_call(layer, x, hx, lengths, learns), expected)
            assert len(prepared(layer)) == 1
        other = noise(5, 10, 4, D).double().requires_grad_(learns)
        results = packed_call(layer, other, hx, [3, 10, 9, 10], learns)
        assert len(prepared(layer)) == 1
        layer.glassgate.prepared_calls.forget()
        near(results, packed_call(layer, other, hx, [3, 10, 9, 10], learns))


@pytest.mark.parametrize("name", NAMES)
def test_the_results_have_the_same_bits_in_inference(name):
    layer, states = made(name, torch.float32)
    x = noise(1, *((4, 9) if layer.batch_first else (9, 4)), layer.input_size)
    for lengths in ([7, 0, 3, 9], [2, 5, 5, 1]):
        layer.glassgate.prepared_calls.forget()
        first = call(layer, x, states, False, lengths=lengths)
        for _ in range(2):
            assert all(map(torch.equal, call(layer, x, states, False, lengths=lengths), first))


def test_second_derivatives_with_lengths():
    layer, _ = made("delta rule")
    x = noise(1, 4, 4, 6).double().requires_grad_()
    for _ in range(3):
        assert torch.autograd.gradgradcheck(lambda v: layer(v, lengths=[4, 0, 2, 3])[0], (x,))
    assert prepared(layer)


def test_products_on_kernels_with_any_number_of_packed_rows(monkeypatch):
    from glassgate.engines.llvm_cpu.arrays import engine

    monkeypatch.setattr(engine, "torch_multiplies_with_mkl", lambda: False)
    layer = ARRAY_LAYERS["large products"]()
    for lengths in ([20, 18, 20, 17], [20, 18, 20, 17], [20, 18, 20, 17], [17, 19, 20, 16]):
        x = noise(1, 20, 4, 256).requires_grad_()
        results = packed_call(layer, x, None, lengths, True)
    assert prepared(layer)
    layer.glassgate.prepared_calls.forget()
    for one, other in zip(results, packed_call(layer, x, None, lengths, True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
