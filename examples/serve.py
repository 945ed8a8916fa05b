"""A web service that answers concurrent requests with one batched call of a session.

Save a session of a layer with `session.save("tagger.safetensors")`, then run
`SESSION=tagger.safetensors uvicorn serve:app`. A request that is not a sequence of the right width gets a status of 4xx
before it is in a batch, so it cannot disturb the requests of others.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, HTTPException, Request
from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect

import glassgate as gg

MAX_BATCH = 32  # the maximum number of sequences in a batch
MAX_STEPS = 2_000  # the maximum length of a sequence
MAX_BYTES = 2**20  # the maximum size of a request
MAX_SECONDS = 10  # the maximum time in which a client sends its request
STEPS = TypeAdapter(list[list[float]])


async def answer(session, queue) -> None:
    """Answer the requests of the queue. Up to MAX_BATCH waiting requests form a batch."""
    while True:
        requests = [await queue.get()]
        while len(requests) < MAX_BATCH and not queue.empty():
            requests.append(queue.get_nowait())
        inputs, futures = zip(*requests, strict=True)
        batch, lengths = torch.nn.utils.rnn.pad_sequence(inputs), [len(x) for x in inputs]
        try:
            output, _ = await asyncio.to_thread(session, batch, lengths=lengths)  # releases the GIL
            results = [output[:length, k] for k, length in enumerate(lengths)]
        except (RuntimeError, MemoryError) as error:  # the service continues with the next batch
            results = [HTTPException(503, f"the batch failed: {error}")] * len(requests)
        for future, result in zip(futures, results, strict=True):
            if not future.done():  # a client that disconnects cancels its future
                future.set_result(result)


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Load the session, and run `answer` while the service runs."""
    session, app.state.queue = gg.load_session(os.environ["SESSION"]), asyncio.Queue()
    app.state.input_size = session.module.spec.input_size
    task = asyncio.create_task(answer(session, app.state.queue))
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


async def read_body(request: Request) -> bytes:
    """Return the body of a request that is small enough and arrives in time."""
    body = b""
    try:
        async with asyncio.timeout(MAX_SECONDS):
            async for block in request.stream():
                body += block
                if len(body) > MAX_BYTES:
                    raise HTTPException(413, f"expected at most {MAX_BYTES} bytes; send a shorter sequence")
    except TimeoutError:
        raise HTTPException(408, f"expected the request within {MAX_SECONDS} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request is cut short") from None
    return body


@app.post("/")
async def run(request: Request) -> list[list[float]]:
    """Map a sequence (L, H_in) to its output (L, H_out)."""
    width = request.app.state.input_size
    try:
        x = torch.tensor(STEPS.validate_json(await read_body(request), strict=True))
    except ValueError:  # not JSON, not numbers, or lists of different lengths
        x = torch.empty(0)
    if x.shape[1:] != (width,) or len(x) > MAX_STEPS or not x.isfinite().all():
        raise HTTPException(422, f"expected 1 to {MAX_STEPS} steps as a JSON list, each a list of {width} numbers")
    future = asyncio.get_running_loop().create_future()
    await request.app.state.queue.put((x, future))
    result = await future
    if isinstance(result, HTTPException):
        raise result
    if not result.isfinite().all():
        raise HTTPException(422, "the output is not finite; send smaller numbers")
    return result.tolist()
