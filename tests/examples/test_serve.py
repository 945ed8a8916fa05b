"""The web service of examples/serve.py: good and bad requests of 16 clients at once, slow clients, and clients that go.

The service runs with uvicorn on 127.0.0.1.
"""

import asyncio
import importlib.util
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import glassgate as gg

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

GOOD = [torch.randn(1 + k % 7, 3) for k in range(600)]
BAD = [
    "[[1, 2]]", "[[1, 2, 3, 4]]", "[]", "[[]]", "[[[1, 2, 3]]]", "[[1, 2, 3], [1, 2]]", "1", "null", "{}", '"text"',
    '[["1", "2", "3"]]', "[[true, true, true]]", "[[null, 1, 2]]", "[[NaN, 1, 2]]", "[[Infinity, 1, 2]]",
    "[[1e39, 1, 2]]", "[[1, 2, 3]", "", "[" * 100_000, "\udcff", json.dumps([[1, 2, 3]] * 2_001),
    "[[1, 2, 1" + "0" * 400 + "]]",
]  # fmt: skip


@pytest.fixture(scope="module")
def layer() -> gg.GRU:
    return gg.GRU(3, 8).eval()


@pytest.fixture
def serve(layer: gg.GRU, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the example, with a session of `layer`."""
    gg.freeze(layer).save(tmp_path / "gru.safetensors")
    monkeypatch.setenv("SESSION", str(tmp_path / "gru.safetensors"))
    spec = importlib.util.spec_from_file_location("serve", Path(__file__).parents[2] / "examples/serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def service(serve: ModuleType) -> AsyncIterator[tuple[Any, int]]:
    """Run the service. Yields a client and the port."""
    server = uvicorn.Server(uvicorn.Config(serve.app, port=0, log_level="critical", lifespan="on"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client, port
    server.should_exit = True
    await running


async def leave(port: int, body: bytes, length: int) -> None:
    """Send a part of a request, and close the connection without waiting for the answer."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % length + body)
    await writer.drain()
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    writer.close()


def test_a_thousand_good_and_bad_requests_from_16_clients(serve: ModuleType, layer: gg.GRU) -> None:
    async def load() -> list[Any]:
        async with service(serve) as (client, port):
            mixed = [*GOOD, *(BAD[k % len(BAD)] for k in range(400))]
            random.Random(0).shuffle(mixed)
            left = iter(mixed)
            answers: list[Any] = []

            async def send() -> None:
                """Send requests, two at a time on kept connections, and leave during every twentieth."""
                for number, content in enumerate(left):
                    body = content if isinstance(content, str) else json.dumps(content.tolist())
                    raw = body.encode(errors="surrogateescape")
                    two = await asyncio.gather(*[client.post("/", content=raw) for _ in range(1 + (number % 20 == 0))])
                    answers.extend((content, each) for each in two)
                    if number % 20 == 1:
                        await leave(port, b"[[1, 2, 3]]", 11 + 9 * (number % 40 == 1))

            await asyncio.gather(*[send() for _ in range(16)])
            return answers

    answers = asyncio.run(load())
    assert len(answers) >= 1_000
    for content, response in answers:
        if isinstance(content, str):
            assert response.status_code == 422, content[:50]
            assert response.json()["detail"] == "expected 1 to 2000 steps as a JSON list, each a list of 3 numbers"
        else:
            assert response.status_code == 200
            torch.testing.assert_close(torch.tensor(response.json()), layer(content)[0].detach())


def test_large_and_slow_requests_and_other_paths(serve: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MAX_SECONDS", 0.3)

    async def slow() -> AsyncIterator[bytes]:
        yield b"[[1, 2, "
        await asyncio.sleep(1)
        yield b"3]]"

    async def statuses() -> list[int]:
        async with service(serve) as (client, _):
            waiting = asyncio.create_task(client.post("/", content=slow()))
            requests = [
                client.post("/", content=b" " * (serve.MAX_BYTES + 1)),
                client.get("/"),
                client.delete("/"),
                client.post("/none"),
                client.post("/", content=b"[[1, 2, 3]]", headers={"Content-Type": "text/plain"}),
            ]
            answers = [(await each).status_code for each in requests]
            return [*answers, (await waiting).status_code]

    assert asyncio.run(statuses()) == [413, 405, 405, 404, 200, 408]


def test_a_batch_that_fails_does_not_end_the_service(serve: ModuleType) -> None:
    """A session of a layer with another width raises an error for each batch."""

    async def statuses() -> list[int]:
        async with service(serve) as (client, _):
            serve.app.state.input_size = 2
            failed = await client.post("/", content=b"[[1, 2]]")
            serve.app.state.input_size = 3
            return [failed.status_code, (await client.post("/", content=b"[[1, 2, 3]]")).status_code]

    assert asyncio.run(statuses()) == [503, 200]
