"""A web service around a session that answers concurrent requests in one batch.

Save a session with `session.save("tagger.safetensors")`, then run `SESSION=tagger.safetensors uvicorn serve:app`.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI

import glassgate as gg

MAX_BATCH = 32  # sequences in a batch
queue: asyncio.Queue = asyncio.Queue()


async def answer() -> None:
    session = gg.load_session(os.environ["SESSION"])
    while True:
        waiting = [await queue.get()]
        while len(waiting) < MAX_BATCH and not queue.empty():
            waiting.append(queue.get_nowait())
        batch = torch.nn.utils.rnn.pad_sequence([x for x, _ in waiting])
        output, _ = await asyncio.to_thread(session, batch, lengths=[len(x) for x, _ in waiting])  # releases the GIL
        for k, (x, future) in enumerate(waiting):
            future.set_result(output[: len(x), k].tolist())


@asynccontextmanager
async def lifespan(app: FastAPI):
    task = asyncio.create_task(answer())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/")
async def run(steps: list[list[float]]) -> list[list[float]]:
    future = asyncio.get_running_loop().create_future()
    await queue.put((torch.tensor(steps), future))
    return await future
