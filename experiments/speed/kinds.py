"""The kinds of rows, each with its contenders and sizes, (L, N, H); rows.py lists the rows."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from experiments.speed.row import Point, Row
from experiments.speed.workload import SQUARE, Workload

HIDDEN, BATCH = (32, 64, 128, 256, 512, 1024), (1, 8, 32, 128)
GRID = (*((100, N, H) for H, N in product(HIDDEN, BATCH)), (35, 20, 650), (1000, 16, 128))
STEPS_OF_SHORT_CALLS = (1, 2, 5, 10, 20)
CELL_GRID = tuple((100, N, H) for H, N in product((64, 128, 256, 512), (8, 32, 128)))
STOCK = {"LSTM": "nn.LSTM", "GRU": "nn.GRU", "RNN": "nn.RNN"}
RUNTIMES = {"nn.LSTM": "stock", "ONNX Runtime": "onnxruntime_cpu", "OpenVINO": "openvino_cpu"}


def workloads(sizes: Iterable[tuple[int, int, int]] = GRID, **more: Any) -> list[Workload]:
    """Return one workload per size."""
    return [Workload(L, N, H, **more) for L, N, H in sizes]


def against(ours: Iterable[Workload], name: str, **change: Any) -> tuple[Point, ...]:
    """Return a point for each workload, compared with the same workload after a change."""
    return tuple(Point(workload, {name: replace(workload, **change)}) for workload in ours)


def against_torch(ours: Iterable[Workload]) -> tuple[Point, ...]:
    """Return a point for each workload, compared with torch.nn."""
    return tuple(Point(workload, {STOCK[workload.cell]: replace(workload, peer="stock")}) for workload in ours)


def row_of_all_sizes(name: str, what: str, do: str, cell: str, mean: float, worst: float, **more: Any) -> Row:
    """Return a row of all sizes, compared with torch.nn."""
    return Row(name, what, STOCK[cell], against_torch(workloads(do=do, cell=cell, **more)), mean, worst)


def against_products(workload: Workload) -> Point:
    """Return a point that compares a training step with its matrix products outside of the recurrence."""
    return Point(workload, {"products": replace(workload, peer="products", do="around")})


def against_large_product(workload: Workload) -> Point:
    """Return a point that compares a training step with a large matrix product, scaled to equal operations."""
    return Point(
        workload, {"product": replace(workload, peer="products", do="square", scale=workload.flops / (2 * SQUARE**3))}
    )


def cell_cost(name: str, what: str, mean: float, **cell: Any) -> Row:
    """Return a row of training steps of a cell, compared with those of Glassgate's LSTM."""
    ours = workloads(CELL_GRID, **cell)
    points = against(ours, "plain LSTM", cell="LSTM", options=())
    return Row(name, f"{what}, training", "the plain LSTM", points, mean, cost=True)


def short_calls(cell: str, do: str) -> Row:
    """Return a row of calls of few steps on the engine that `auto` chooses, compared with torch.nn."""
    ours = workloads(
        ((L, N, H) for H, N, L in product(HIDDEN[:-1], (1, 8, 64), STEPS_OF_SHORT_CALLS)),
        do=do,
        cell=cell,
        engine="auto",
    )
    what = f"{cell}, {do}, 1 to 20 steps"
    return Row(f"short-{cell.lower()}-{do}", what, STOCK[cell], against_torch(ours), 1.5, 1.0)


def cost_in_short_calls(cell: str, do: str, name: str, what: str, **feature: Any) -> Row:
    """Return a row of calls of few steps that use a feature, compared with the same calls without it."""
    ours = workloads(product(STEPS_OF_SHORT_CALLS, (1, 8), (64,)), do=do, cell=cell, engine="auto", **feature)
    points = against(ours, "plain call", **dict.fromkeys(feature, False))
    return Row(
        f"short-{cell.lower()}-{do}-{name}",
        f"{cell}, {do}, 1 to 20 steps, {what}",
        "the same call without",
        points,
        worst=1.15,
        cost=True,
    )


SIZES_OF_SESSIONS = tuple((100, N, H) for H, N in product((32, 64, 128, 256, 512, 1024), (1, 32)))


def sessions(cell: str, mean: float) -> Row:
    """Return a row of float32 sessions, compared with torch.nn, ONNX Runtime and OpenVINO."""
    peers = {STOCK[cell]: "stock", **{name: peer for name, peer in RUNTIMES.items() if peer != "stock"}}
    ours = workloads(SIZES_OF_SESSIONS, do="inference", cell=cell, precision="float32")
    points = tuple(Point(w, {n: replace(w, peer=p, precision="") for n, p in peers.items()}) for w in ours)
    return Row(f"frozen-{cell.lower()}", f"{cell}, float32 session", f"the best of {', '.join(peers)}", points, mean)


def int8_sessions(cell: str) -> Row:
    """Return a row of int8 sessions, compared with float32 sessions."""
    ours = workloads(SIZES_OF_SESSIONS, do="inference", cell=cell, precision="int8")
    points = against(ours, "our session in float32", precision="float32")
    return Row(f"frozen-{cell.lower()}-int8", f"{cell}, int8 session", "the float32 session", points, 1.3)


def int8_lstm_sessions() -> Row:
    """Return a row of int8 sessions, compared with the quantised LSTM of ONNX Runtime."""
    ours = workloads(SIZES_OF_SESSIONS, do="inference", precision="int8")
    points = against(ours, "ONNX Runtime, int8", peer="onnxruntime_cpu")
    return Row("frozen-lstm-int8-runtime", "LSTM, int8 session", "ONNX Runtime's quantised LSTM", points, 1.3)


MEMORIES = ("RetNet", "GLA", "DeltaNet")
SIZES_OF_MEMORIES = (*product((128, 1_024), (1,), (256, 1_024)), (128, 32, 256), (1_024, 8, 512), (4_096, 1, 256))


def memory_points(sizes: Iterable[tuple[int, int, int]], do: str, name: str, peer: str) -> tuple[Point, ...]:
    """Return the points of cells with a matrix memory, compared with another program."""
    sizes = tuple(sizes)
    return tuple(p for cell in MEMORIES for p in against(workloads(sizes, do=do, cell=cell), name, peer=peer))


def memories(do: str, name: str, against_what: str, peer: str, mean: float, worst: float | None = None) -> Row:
    """Return a row of cells with a matrix memory, compared with PyTorch. The matrices are 64 x 64."""
    points = memory_points(SIZES_OF_MEMORIES, do, name, peer)
    what = f"RetNet, gated linear attention and DeltaNet, heads of 64 x 64, {do}"
    return Row(f"matrix-{name}-{do}", what, against_what, points, mean, worst)
