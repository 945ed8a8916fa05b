import json

import pytest
import torch

from glassgate.claims import products
from glassgate.cli.compare import command
from tests.forked import forked


def test_all_variants_have_the_results_and_gradients_of_torch():
    torch.manual_seed(0)
    x, layer = torch.randn(7, 3, 5, dtype=torch.float64), torch.nn.LSTM(5, 6, dtype=torch.float64)
    expected, _ = layer(x)
    gradient = torch.autograd.grad(expected.square().sum(), layer.weight_hh_l0)[0]
    for name, variant in products.VARIANTS.items():
        output = variant(x, layer)
        assert torch.allclose(output, expected, atol=1e-12), name
        gradient_of_variant = torch.autograd.grad(output.square().sum(), layer.weight_hh_l0)[0]
        assert torch.allclose(gradient_of_variant, gradient, atol=1e-11), name


def test_the_command_measures_and_draws_the_variants(tmp_path, monkeypatch):
    monkeypatch.setattr(products, "SIZES", ((1, 8), (2, 8)))
    monkeypatch.setattr(products, "LENGTH", 3)
    monkeypatch.setattr(products, "get_context", lambda method: forked())
    command(["products", "--quick", "-o", str(tmp_path)])
    rows = json.loads((tmp_path / "products.json").read_text())["rows"]
    assert {row["variant"] for row in rows} >= set(products.VARIANTS)
    assert all(row["error"] < 1e-5 for row in rows)
    assert (tmp_path / "products.html").read_text().count("<svg") == 1


def test_the_result_of_onnx_runtime_is_that_of_float64():
    pytest.importorskip("onnxruntime", exc_type=ImportError)
    pytest.importorskip("onnx", exc_type=ImportError)
    assert products._measure_onnx(products.Size(2, 8), 1, 1e9)["error"] < 1e-5
