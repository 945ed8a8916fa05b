"""Prepared calls of cells that declare axes equal those of the general path, also with lengths and packed sequences."""

import pytest
import torch

import glassgate as gg
from glassgate.engines.llvm_cpu.arrays import engine as arrays
from tests.compare import noise as noise64
from tests.engines.llvm_cpu.array_cells import Decayed, DeltaRule
from tests.layers.test_prepared_calls import call, noise, prepared, same
from tests.layers.test_prepared_sequences import packed_call

ARRAY_LAYERS = {
    "delta rule": lambda: gg.Recurrent(DeltaRule(2, 3, 4), 6, 8),
    "batch first": lambda: gg.Recurrent(Decayed(2, 3, 4), 6, 8, batch_first=True, dtype=torch.float64),
    "two layers, two directions": lambda: gg.Recurrent(Decayed(2, 3, 4), 6, 8, 2, bidirectional=True, merge="sum"),
    "the raw input": lambda: gg.Recurrent(gg.cells.GRUD(), 6, 8),
    "initial values": lambda: gg.Recurrent(gg.cells.MLSTM(2, 4), 6, 8),
    "large products": lambda: gg.Recurrent(DeltaRule(2, 64, 64), 256, 128),
}
"""Layers whose cells declare axes."""

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
    x = noise(1, 3, 3, 6).double().requires_grad_()
    for _ in range(3):
        assert torch.autograd.gradgradcheck(lambda v: layer(v, lengths=[3, 0, 2])[0], (x,))
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


@pytest.mark.parametrize(
    ("name", "product"), [*((name, "torch") for name in ARRAY_LAYERS), ("large products", "kernels")]
)
def test_prepared_calls_of_cells_that_declare_axes_give_the_same_bits(monkeypatch, name, product):
    monkeypatch.setattr(arrays, "torch_multiplies_with_mkl", lambda: product == "torch")
    layer = ARRAY_LAYERS[name]()
    D, dtype = layer.input_size, layer.weight_ih_l0.dtype
    for batch in ((3,), (), (1,)) if name != "large products" else ((3,),):
        shape = (*batch, 7, D) if layer.batch_first else (50, *batch, D)
        x = noise(1, *shape).to(dtype).requires_grad_()
        with torch.no_grad():
            _, final = layer(x)
        hx, restart = [
            tuple([noise(seed + k, *v.shape).to(dtype).requires_grad_() for k, v in enumerate(final)])
            for seed in (2, 4)
        ]
        mask = noise(6, *x.shape[:-1]) > 1
        for more in ({}, {"resets": mask}, {"resets": mask, "restart": restart}):
            for state in (None, hx):
                for learns in (True, False):
                    before = len(prepared(layer))
                    first = call(layer, x, state, learns, **more)
                    first = first if before or learns else call(layer, x, state, learns, **more)
                    for _ in range(3):
                        same(call(layer, x, state, learns, **more), first)
                    assert len(prepared(layer)) == before + 1
        (_, _, states), (_, _, expected) = layer(x, hx, return_states=True), layer(x, hx, return_states=True)
        same([*states.values()], [*expected.values()])
    with gg.engine("reference"):
        truth = call(layer, x, hx)
    for actual, expected in zip(call(layer, x, hx), truth, strict=True):
        scale = max(1.0, *expected.abs().flatten().tolist(), 1.0)
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * scale)


def test_prepared_calls_of_cells_that_declare_axes_notice_changes():
    class Fast(gg.Cell):
        gates, state = {"k": ("key",), "v": ("value",)}, {"h": ("value",), "S": ("key", "value")}
        key, recurrent, factor = 4, False, 0.9

        def step(self, a, s):
            S = self.factor * s.S + a.k[..., None] * a.v[..., None, :]
            return S.sum(-2), S

    cell = Fast()
    layer, x = gg.Recurrent(cell, 6, 5), noise(1, 4, 3, 6)
    for _ in range(3):
        call(layer, x)
    assert prepared(layer)
    cell.factor = 0.5
    with gg.engine("reference"):
        expected = call(layer, x)
    for actual, other in zip(call(layer, x), expected, strict=True):
        torch.testing.assert_close(actual, other)
    x64 = noise64(1, 3, 2, 6).requires_grad_()
    layer.double()
    for _ in range(3):
        assert torch.autograd.gradgradcheck(lambda v: layer(v)[0], (x64,))


NOISY = {
    "zoneout": lambda: gg.Recurrent(DeltaRule(2, 3, 4), 6, 8, zoneout={"S": 0.3, "h": 0.2}, dtype=torch.float64),
    "dropout of states": lambda: gg.Recurrent(
        *(Decayed(2, 3, 4), 6, 8, 2),
        bidirectional=True,
        dropout=0.2,
        variational_dropout=True,
        zoneout=0.2,
        dtype=torch.float64,
    ),
    "the raw input": lambda: gg.Recurrent(gg.cells.GRUD(), 6, 8, zoneout=0.3, batch_first=True, dtype=torch.float64),
}


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", NOISY)
def test_noise_is_drawn_again_and_equals_that_of_the_reference_engine(name, learns):
    layer = NOISY[name]()
    x = noise64(1, *((4, 9) if layer.batch_first else (9, 4)), 6).requires_grad_()
    resets = noise64(2, *x.shape[:2]) > 0.5
    with gg.engine("reference"):
        expected = call(layer, x, learns=learns, resets=resets)
    for _ in range(4):
        near(call(layer, x, learns=learns, resets=resets), expected)
    assert len(prepared(layer)) == 1
    assert not torch.equal(layer(x, resets=resets)[0], layer(x, resets=resets)[0])


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", ["batch first", "two layers, two directions", "the raw input", *NOISY])
def test_recorded_calls_record_what_the_reference_engine_records(name, learns):
    layer = (ARRAY_LAYERS | NOISY)[name]().double()
    x = noise64(1, *((4, 9) if layer.batch_first else (9, 4)), 6).requires_grad_(name == "zoneout")
    resets = noise64(2, *x.shape[:2]) > 0.5
    hx = tuple([noise64(3, *v.shape).requires_grad_() for v in layer(x)[1]])
    layer.glassgate.prepared_calls.forget()

    def recorded():
        torch.manual_seed(0)
        with torch.set_grad_enabled(learns), gg.record(layer) as tape:
            output, final = layer(x, hx, resets=resets)
        if not learns:
            return output, final, dict(tape)
        (output.square().sum() + sum(v.sin().sum() for v in final)).backward()
        return output, final, dict(tape), dict(tape.grad)

    with gg.engine("reference"):
        expected = recorded()
    for _ in range(3):
        torch.testing.assert_close(recorded(), expected, rtol=1e-9, atol=1e-9)
    assert len(prepared(layer)) == 1


def test_edited_calls_are_prepared_with_their_numbers():
    layer, x = ARRAY_LAYERS["two layers, two directions"]().double(), noise64(1, 9, 4, 6).requires_grad_()
    edits = {"layer0.forward.n": [gg.scale(0.5, steps=slice(2, 5))], "layer1.reverse.w": gg.hold(0.25)}
    plain = call(layer, x)
    with gg.edit(layer, edits):
        with gg.engine("reference"):
            expected = call(layer, x)
        for _ in range(3):
            near(call(layer, x), expected)
        assert len(prepared(layer)) == 1
    near(call(layer, x), plain)
    assert not torch.allclose(plain[0], expected[0])
