"""A web service that answers concurrent requests with one batched call of a session.

Save a session with `session.save("tagger.safetensors")`, then run `SESSION=tagger.safetensors uvicorn serve:app`.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI

import glassgate as gg

MAX_BATCH = 32  # the maximum number of sequences in a batch
queue: asyncio.Queue = asyncio.Queue()


async def answer() -> None:
    """Answer the requests of the queue. Up to MAX_BATCH waiting requests form a batch."""
    session = gg.load_session(os.environ["SESSION"])
    while True:
        requests = [await queue.get()]
        while len(requests) < MAX_BATCH and not queue.empty():
            requests.append(queue.get_nowait())
        batch = torch.nn.utils.rnn.pad_sequence([x for x, _ in requests])
        output, _ = await asyncio.to_thread(session, batch, lengths=[len(x) for x, _ in requests])  # releases the GIL
        for k, (x, future) in enumerate(requests):
            future.set_result(output[: len(x), k].tolist())


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Run `answer` while the service runs."""
    task = asyncio.create_task(answer())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/")
async def run(steps: list[list[float]]) -> list[list[float]]:
    """Map a sequence (L, H_in) to its output (L, H_out)."""
    future = asyncio.get_running_loop().create_future()
    await queue.put((torch.tensor(steps), future))
    return await future
