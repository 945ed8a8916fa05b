"""The web service of examples/serve.py with many concurrent requests."""

import asyncio
import importlib.util
from pathlib import Path

import pytest
import torch

import glassgate as gg

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")


def test_concurrent_requests_get_their_own_answers(tmp_path, monkeypatch):
    layer = gg.GRU(3, 8).eval()
    gg.freeze(layer).save(tmp_path / "gru.safetensors")
    monkeypatch.setenv("SESSION", str(tmp_path / "gru.safetensors"))
    spec = importlib.util.spec_from_file_location("serve", Path(__file__).parents[2] / "examples/serve.py")
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    inputs = [torch.randn(1 + k % 7, 3) for k in range(200)]

    async def load():
        async with (
            serve.lifespan(serve.app),
            httpx.AsyncClient(transport=httpx.ASGITransport(serve.app), base_url="http://test") as client,
        ):
            return await asyncio.gather(*[client.post("/", json=x.tolist(), timeout=60) for x in inputs])

    for x, response in zip(inputs, asyncio.run(load()), strict=True):
        assert response.status_code == 200
        torch.testing.assert_close(torch.tensor(response.json()), layer(x)[0].detach())
