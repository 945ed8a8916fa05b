"""The rows of all measurements, with contenders, sizes and targets. Sizes are (L, N, H)."""

from dataclasses import replace
from itertools import product

from experiments.speed.kinds import (
    CELL_GRID,
    GRID,
    RUNTIMES,
    STOCK,
    against,
    against_large_product,
    against_products,
    against_torch,
    cell_cost,
    cost_in_short_calls,
    int8_lstm_sessions,
    int8_sessions,
    memories,
    memory_points,
    row_of_all_sizes,
    sessions,
    short_calls,
    workloads,
)
from experiments.speed.row import Point, Row
from experiments.speed.workload import Workload

LOOPED = ("PeepholeLSTM", "LayerNormLSTM", "FourGates")
LARGE_GRID = tuple((L, N, H) for L, N, H in CELL_GRID if H >= 128)
SIZES_OF_MINIMAL_CELLS = tuple(product((1_000, 10_000), (1, 8), (64, 256)))
TINY = Workload(10, 2, 16)

ROWS = (
    row_of_all_sizes("lstm-training", "LSTM, training", "training", "LSTM", 1.6, 1.0),
    Row(
        "model-training",
        "language model with an LSTM, training step",
        "the same model with nn.LSTM",
        against_torch(workloads(CELL_GRID, do="model")),
        worst=1.0,
    ),
    Row(
        "lstm-inference",
        "LSTM, inference",
        "the best of nn.LSTM, ONNX Runtime, OpenVINO",
        tuple(Point(w, {n: replace(w, peer=p) for n, p in RUNTIMES.items()}) for w in workloads(do="inference")),
        1.3,
        0.95,
    ),
    sessions("LSTM", 1.3),
    sessions("GRU", 1.5),
    int8_sessions("LSTM"),
    int8_sessions("GRU"),
    int8_lstm_sessions(),
    row_of_all_sizes("gru-training", "GRU, training", "training", "GRU", 4, 1.2),
    row_of_all_sizes("gru-inference", "GRU, inference", "inference", "GRU", 4, 1.2),
    row_of_all_sizes("rnn-training", "RNN, training", "training", "RNN", 4, 1.2),
    row_of_all_sizes("rnn-inference", "RNN, inference", "inference", "RNN", 4, 1.2),
    *(short_calls(cell, do) for cell in STOCK for do in ("training", "inference")),
    *(
        row
        for cell, do in product(("LSTM", "GRU"), ("training", "inference"))
        for row in (
            cost_in_short_calls(cell, do, "record", "inside `gg.record`", record=True),
            cost_in_short_calls(cell, do, "lengths", "`lengths=` uniform in [L/10, L]", padded=True),
        )
    ),
    Row(
        "lstm-projection",
        "LSTM with projection to H / 2, training",
        "nn.LSTM",
        against_torch(replace(w, proj=w.H // 2) for w in workloads()),
        3,
        1.2,
    ),
    *(
        row
        for do in ("training", "inference")
        for row in (
            Row(
                f"lstm-bfloat16-{do}",
                f"LSTM under autocast to bfloat16, {do}",
                "nn.LSTM under the same autocast",
                against_torch(workloads(LARGE_GRID, do=do, autocast=True)),
                1.5,
                1.0,
            ),
            Row(
                f"bfloat16-{do}",
                f"LSTM, GRU and custom cells under autocast to bfloat16, {do}",
                "the same in float32",
                tuple(
                    point
                    for cell in ("LSTM", "GRU", *LOOPED)
                    for point in against(
                        workloads(LARGE_GRID, do=do, cell=cell, autocast=True), "ours in float32", autocast=False
                    )
                ),
                1.4,
                1.0,
            ),
        )
    ),
    row_of_all_sizes("lstm-float64", "LSTM in float64, training", "training", "LSTM", 3, 1.2, dtype="float64"),
    row_of_all_sizes(
        "lstm-packed", "LSTM, packed lengths uniform in [L/10, L], training", "training", "LSTM", 3, 1.2, ragged=True
    ),
    row_of_all_sizes(
        "lstm-bidirectional",
        "bidirectional LSTM of two layers, training",
        "training",
        "LSTM",
        1.8,
        1.1,
        layers=2,
        bidirectional=True,
    ),
    Row(
        "resets",
        "LSTM with resets, 1 % per step, training",
        "the same without resets",
        against(workloads(resets=0.01), "ours without resets", resets=0.0),
        0.95,
        0.9,
    ),
    Row(
        "stream",
        "one step of `layer.stream`, batch 1",
        "one call of nn.LSTM under no_grad",
        against_torch(workloads(((20, 1, H) for H in (16, 32, 64, 128, 256)), do="step")),
        10,
        4,
    ),
    replace(
        row_of_all_sizes("lstm-training-busy", "LSTM, training under CPU contention", "training", "LSTM", 5, 2),
        busy=True,
    ),
    Row(
        "lstm-training-jax",
        "LSTM, training",
        "jax.lax.scan under jit",
        against(workloads(), "jax", peer="jax_scan"),
        2,
        1.2,
    ),
    Row(
        "share-of-product",
        "LSTM, training, batch >= 32 and H >= 256",
        "torch's large matrix product",
        tuple(against_large_product(w) for w in workloads((L, N, H) for L, N, H in GRID if N >= 32 and H >= 256)),
        worst=0.7,
        unit="of it",
    ),
    Row(
        "memory-training",
        "peak memory of an LSTM's training step",
        "nn.LSTM",
        against_torch(workloads(((100, 32, 128), (100, 128, 256), (100, 32, 512), (35, 20, 650), (1000, 16, 128)))),
        worst=1.0,
        cost=True,
        measure="memory",
    ),
    Row(
        "memory-recompute",
        "peak memory of an LSTM's training step with recompute=True",
        "the same without recompute",
        against(
            workloads(((1000, 16, 128), (1000, 32, 256)), options=(("recompute", True),)), "ours without", options=()
        ),
        worst=1.0,
        cost=True,
        measure="memory",
    ),
    Row(
        "linear",
        "LSTM, inference, time per step of long sequences",
        "the same at L = 1,000",
        tuple(
            Point(w, {"L = 1,000": replace(w, L=1_000, scale=w.L / 1_000)})
            for w in workloads(((L, 1, 64) for L in (10_000, 100_000, 1_000_000)), do="inference")
        ),
        worst=0.8,
    ),
    Row(
        "memory-stream",
        "memory that 1,000,000 steps of `layer.stream` add",
        "",
        (Point(Workload(1_000_000, 1, 64, do="step")),),
        worst=1.0,
        cost=True,
        unit="MiB",
        measure="growth",
    ),
    Row(
        "first-call",
        "first call with an empty cache",
        "",
        (Point(TINY),),
        worst=5.0,
        cost=True,
        unit="s",
        measure="first call",
    ),
    Row(
        "new-cell",
        "first call of a new cell after a call of another one, forward and backward compiled",
        "",
        tuple(Point(replace(TINY, cell=c)) for c in ("LSTM", "LayerNormLSTM", "FourGates")),
        worst=5.0,
        cost=True,
        unit="s",
        measure="new cell",
    ),
    Row(
        "cached-call",
        "first call in a fresh process of a cell that is cached on disk",
        "",
        tuple(Point(replace(TINY, cell=c)) for c in ("LSTM", "LayerNormLSTM", "FourGates")),
        worst=0.3,
        cost=True,
        unit="s",
        measure="cached call",
    ),
    Row(
        "import",
        "time that `import glassgate` adds to `import torch`",
        "",
        (Point(TINY),),
        worst=0.2,
        cost=True,
        unit="s",
        measure="import",
    ),
    cell_cost("cell-peephole", "peephole LSTM", 1.15, cell="PeepholeLSTM"),
    cell_cost("cell-layer-norm", "layer-normalised LSTM", 1.35, cell="LayerNormLSTM"),
    cell_cost("cell-zoneout", "LSTM with zoneout", 1.15, options=(("zoneout", 0.1),)),
    cell_cost("cell-recurrent-dropout", "LSTM with recurrent dropout", 1.15, options=(("recurrent_dropout", 0.2),)),
    cell_cost("cell-cifg", "coupled input-forget LSTM", 1.0, cell="CIFG"),
    cell_cost("cell-mgu", "minimal gated unit", 1.0, cell="MGU"),
    cell_cost("cell-four-gates", "a custom cell with four gates", 1.2, cell="FourGates"),
    Row(
        "eager-loop",
        "peephole, layer-normalised and custom cells, training",
        "the same cell as an eager loop",
        tuple(p for cell in LOOPED for p in against(workloads(CELL_GRID, cell=cell), "eager loop", peer="loop")),
        5,
    ),
    Row(
        "eager-loop-64",
        "the same at H = 64",
        "the same cell as an eager loop",
        tuple(p for cell in LOOPED for p in against(workloads(CELL_GRID[:3], cell=cell), "eager loop", peer="loop")),
        10,
    ),
    memories("training", "recurrence", "the same steps in PyTorch", "loop", 10),
    memories("inference", "recurrence", "the same steps in PyTorch", "loop", 15),
    memories("training", "chunked", "the chunked form in PyTorch", "chunked", 2, 1.3),
    memories("inference", "chunked", "the chunked form in PyTorch", "chunked", 2.5),
    Row(
        "matrix-stream",
        "RetNet, gated linear attention and DeltaNet, one step of `layer.stream`, batch 1",
        "the same step in PyTorch",
        memory_points(((20, 1, 256), (20, 1, 1_024)), "step", "PyTorch", "loop"),
        10,
    ),
    Row(
        "matrix-memory",
        "RetNet, gated linear attention and DeltaNet, peak memory of a training step",
        "the chunked form in PyTorch",
        memory_points(((1_024, 8, 256), (4_096, 1, 256)), "training", "chunked", "chunked"),
        worst=1.0,
        cost=True,
        measure="memory",
    ),
    Row(
        "compiled-loop",
        "layer-normalised LSTM, training",
        "the eager loop under torch.compile",
        against([Workload(100, 32, 128, cell="LayerNormLSTM")], "torch.compile", peer="compiled"),
        worst=1.0,
    ),
    *(
        Row(
            f"lstm-training-{name}",
            "LSTM, training",
            what,
            against([Workload(100, 32, 128)], "torch.compile", peer=peer),
            worst=1.0,
        )
        for name, peer, what in (
            ("scan", "compiled_scan", "torch's `scan` under torch.compile"),
            ("compiled", "compiled_stock", "nn.LSTM under torch.compile, `allow_rnn`"),
        )
    ),
    Row(
        "resets-by-step",
        "LSTM with resets, 1 % per step, training",
        "one nn.LSTM call per step with masked states",
        against_torch([Workload(128, 64, 256, resets=0.01)]),
        worst=5,
    ),
    *(
        Row(
            name,
            f"{cell}, training",
            "the matrix products outside of the recurrence",
            tuple(against_products(w) for w in workloads(SIZES_OF_MINIMAL_CELLS, cell=cell)),
            worst=1.3,
            cost=True,
        )
        for name, cell in (("min-lstm", "MinLSTM"), ("min-gru", "MinGRU"))
    ),
    Row(
        "record",
        "LSTM, training inside `gg.record`",
        "the same step without recording",
        against(workloads(CELL_GRID, record=True), "plain step", record=False),
        worst=1.3,
        cost=True,
    ),
)
