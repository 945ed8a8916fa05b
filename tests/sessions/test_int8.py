"""Sessions in int8: matrix products, differences from float32, files and errors."""

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.engines.llvm_cpu.processor import host, pretend
from tests.compare import noise

CELLS = {
    "lstm": lambda: gg.LSTM(20, 24, 2, bidirectional=True),
    "gru": lambda: gg.GRU(33, 17),
    "projected": lambda: gg.LSTM(16, 24, proj_size=9),
    "norm": lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), 20, 17),
    "input only": lambda: gg.Recurrent(gg.cells.MinGRU(), 20, 17),
    "narrow input": lambda: gg.RNN(3, 19),
}


def made(kind: str) -> gg.Recurrent:
    layer = CELLS[kind]().eval()
    with torch.no_grad():
        for k, parameter in enumerate(layer.parameters()):
            parameter.copy_(noise(k, *parameter.shape) / 24**0.5)
    return layer


def rounded_rows(matrix: Tensor) -> Tensor:
    """Round each row to integers from -127 to 127 times a scale."""
    largest = matrix.abs().amax(1, keepdim=True)
    return (matrix * (127 / largest)).round().double() * (largest / 127).double()


@pytest.mark.parametrize("integers", ["", "portable", "emulated"])
def test_a_step_multiplies_rounded_rows(integers):
    """The three cases are the instructions of this processor, plain operations, and the memory layout of VNNI."""
    layer, x, h = made("gru"), noise(1, 1, 3, 33).float(), noise(2, 1, 3, 17).float()
    ih = rounded_rows(x[0]) @ rounded_rows(layer.weight_ih_l0.detach()).T + layer.bias_ih_l0.double()
    hh = rounded_rows(h[0]) @ rounded_rows(layer.weight_hh_l0.detach()).T + layer.bias_hh_l0.double()
    (r, z, n), (r_h, z_h, n_h) = ih.chunk(3, -1), hh.chunk(3, -1)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    expected = (1 - z) * torch.tanh(n + r * n_h) + z * h[0]
    with pretend(host().full_precision._replace(integers=integers)):
        got = gg.freeze(layer, "int8")(x, h)[0][0]
    torch.testing.assert_close(got.double(), expected.detach(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", CELLS)
def test_results_of_every_cell_are_near_those_in_float32(kind):
    layer = made(kind)
    session, exact, x = gg.freeze(layer, "int8"), gg.freeze(layer), noise(1, 9, 4, layer.input_size).float()
    for options in ({}, {"lengths": [9, 0, 4, 1]}, {"resets": noise(2, 9, 4) > 0.5}):
        got, expected = session(x, **options)[0], exact(x, **options)[0]
        assert 0 < (got - expected).norm() / expected.norm() < 0.03
    if not layer.bidirectional:
        stream = session.stream(4)
        steps = torch.stack([stream.step(x_t).clone() for x_t in x])
        torch.testing.assert_close(steps, session(x)[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("scale", [1e-20, 1e6])
def test_each_row_has_its_own_scale(scale):
    """The accuracy does not depend on the scale of the input or on other rows of the batch."""
    layer = made("input only")
    with torch.no_grad():
        layer.weight_ih_l0.div_(scale)
    x = noise(1, 5, 2, 20).float()
    session = gg.freeze(layer, "int8")
    both = session(torch.stack([x[:, 0] * scale, x[:, 1]], 1))[0][:, 0]
    torch.testing.assert_close(both, gg.freeze(layer)(x * scale)[0][:, 0], atol=0.05, rtol=0)
    zero, fault = torch.zeros(1, 1, 20), torch.full((1, 1, 20), torch.nan)
    torch.testing.assert_close(session(zero)[0], gg.freeze(layer)(zero)[0])
    assert session(fault)[0].isnan().all()


def test_saved_sessions_are_a_quarter_of_the_size_and_give_the_same_bits(tmp_path):
    layer, x = gg.LSTM(256, 256).eval(), noise(1, 3, 2, 256).float()
    small, large = tmp_path / "int8.safetensors", tmp_path / "float32.safetensors"
    session = gg.freeze(layer, "int8")
    session.save(small)
    gg.freeze(layer).save(large)
    assert small.stat().st_size < 0.26 * large.stat().st_size
    loaded = gg.load_session(small)
    assert torch.equal(loaded(x)[0], session(x)[0])
    with pretend(host().full_precision._replace(integers="emulated")):
        torch.testing.assert_close(gg.load_session(small)(x)[0], session(x)[0], atol=1e-6, rtol=0)
    with pytest.raises(RuntimeError, match=r"loaded from a file and has no module to compare with"):
        loaded.compare(x)


def test_matrices_can_stay_in_float32():
    layer = made("projected")
    weights = [*gg.freeze(layer, "int8", keep=["weight_hr_*"]).module.weights[0].items()]
    assert {name for name, v in weights if v.dtype is torch.int8} == {"weight_ih"}
    model, x = nn.Sequential(layer), noise(1, 4, 2, 16).float()
    kept = gg.freeze(model, "int8", keep=["0.weight_*"])
    assert torch.equal(kept(x)[0], gg.freeze(model)(x)[0])
    with pytest.raises(ValueError, match=r"keep has 'weight_x', which matches none of the parameters \['bias_hh_l0'"):
        gg.freeze(layer, "int8", keep=["weight_x"])


def test_compare_prints_gates_and_states(capsys):
    model, x = nn.Sequential(made("lstm")), noise(1, 6, 2, 20).float()
    comparison = gg.freeze(model, "int8").compare(x)
    names = [row.name for row in comparison.rows]
    assert len(names) == 4 * 6
    assert names[:5] == [f"0.layer0.forward.{gate}" for gate in "ifgoh"]
    assert all(0 < row.relative < 0.05 and 0 < row.largest < 0.1 for row in comparison.rows)
    assert capsys.readouterr().out == f"{comparison}\n"
    assert all(row.largest == 0 for row in gg.freeze(model).compare(x).rows)


class Fading(gg.Cell):
    """A cell that reads no input."""

    gates, state = ("z",), ("h",)

    def step(self, a, s):
        return s.h * 0.5


def test_wrong_arguments_are_rejected():
    with pytest.raises(
        gg.EngineError,
        match=r"int8' needs a cell with matrix products, and the equations of this",
    ):
        gg.freeze(gg.Recurrent(Fading(), 20, 4).eval(), "int8")
    if not host().bfloat16:
        with pytest.raises(gg.EngineError, match=r"needs a processor with AVX512-BF16 or AMX-BF16, and this one has"):
            gg.freeze(made("gru"), "bfloat16")
