"""A stream gives the results of a call on whole sequences, on every engine."""

import ctypes
import platform
import sys

import pytest
import torch

import glassgate as gg

LAYERS = {
    "lstm": lambda **kw: gg.LSTM(5, 7, 2, **kw),
    "gru": lambda **kw: gg.GRU(5, 7, **kw),
    "rnn": lambda **kw: gg.RNN(5, 7, 2, "relu", **kw),
    "projected": lambda **kw: gg.LSTM(5, 7, 2, proj_size=3, **kw),
    "residual": lambda **kw: gg.GRU(5, 5, 3, residual=True, learn_initial_state=True, **kw),
    "zoneout": lambda **kw: gg.LSTM(5, 7, zoneout=(0.2, 0.4), **kw),
    "paper": lambda **kw: gg.Recurrent(gg.cells.GRUv3(), 5, 33, bias=False, **kw),
}


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_stream_equals_the_layer(kind, engine):
    torch.manual_seed(0)
    layer = LAYERS[kind](dtype=torch.float64).eval()
    for name, parameter in layer.named_parameters():
        if "_0_l" in name:
            torch.nn.init.normal_(parameter)
    x = torch.randn(9, 4, 5, dtype=torch.float64)
    with gg.engine(engine):
        stream = layer.stream(4)
        steps = torch.stack([stream.step(x_t).clone() for x_t in x])
    with gg.engine("reference"):
        output, _ = layer(x)
    torch.testing.assert_close(steps, output, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rows", [[1, 3], torch.tensor([False, True, False, True])])
def test_reset_rows_start_from_the_initial_state(rows):
    torch.manual_seed(0)
    layer = gg.LSTM(5, 7, 2, dtype=torch.float64)
    x = torch.randn(8, 4, 5, dtype=torch.float64)
    stream = layer.stream(4)
    steps = []
    for t, x_t in enumerate(x):
        if t == 5:
            stream.reset(rows)
        steps.append(stream.step(x_t).clone())
    resets = torch.zeros(8, 4, dtype=torch.bool)
    resets[5, [1, 3]] = True
    torch.testing.assert_close(torch.stack(steps), layer(x, resets=resets)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([0, 4], IndexError, r"Stream.reset: rows must be indices from -4 to 3, got \[0, 4\]"),
        ([True, False], gg.ShapeError, r"Stream.reset: rows must be \(N,\) = \(4,\), got \(2,\)"),
        (1, TypeError, r"Stream.reset: rows must be a mask \(N,\) or a list of indices such as \[0\], got 1"),
        (torch.tensor([0.5]), TypeError, "Stream.reset: rows must be bool or integers, got torch.float32"),
    ],
)
def test_reset_reports_rows_that_do_not_exist(rows, error, message):
    with pytest.raises(error, match=message):
        gg.LSTM(5, 7).stream(4).reset(rows)


def test_reset_of_no_rows_changes_no_state():
    stream = gg.LSTM(5, 7).stream(4)
    before = stream.step(torch.randn(4, 5)).clone()
    stream.reset([])
    assert bool((stream.states[0][0] == before).all())


def test_later_training_does_not_change_a_stream():
    layer, x = gg.GRU(3, 4), torch.randn(6, 2, 3)
    expected = layer(x)[0].detach()
    stream = layer.stream(2)
    steps = [stream.step(x[0]).clone()]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1.0)
    steps += [stream.step(x_t).clone() for x_t in x[1:]]
    torch.testing.assert_close(torch.stack(steps), expected)
    assert (layer(x)[0] - expected).abs()[1:].max() > 0.1
    stream.refresh()
    h = stream.states[0][0].clone()
    torch.testing.assert_close(stream.run(x), layer(x, h[None])[0])
    assert not any(step.requires_grad for step in steps)


def test_a_step_allocates_no_memory():
    stream = gg.LSTM(16, 16).eval().stream(1)
    x = torch.randn(1, 16)
    for _ in range(3):
        stream.step(x)
    with torch.profiler.profile(profile_memory=True) as profile:
        for _ in range(10):
            stream.step(x)
    assert sum(event.self_cpu_memory_usage for event in profile.events() if event.self_cpu_memory_usage > 0) == 0


def test_wrong_arguments_are_rejected():
    with pytest.raises(ValueError, match="stream must have one direction, got bidirectional=True"):
        gg.LSTM(3, 4, bidirectional=True).stream(2)
    stream = gg.LSTM(3, 4).stream(2)
    with pytest.raises(gg.ShapeError, match=r"Stream: x must be \(N, H_in\) = \(2, 3\), got \(3, 3\)"):
        stream.step(torch.randn(3, 3))
    with pytest.raises(gg.ShapeError, match=r"dtype torch\.float32, got torch\.float64"):
        stream.step(torch.randn(2, 3, dtype=torch.float64))


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="MAP_32BIT is a flag of Linux")
def test_tensors_at_low_addresses_are_read():
    """In an executable that is not position-independent, small tensors have addresses below 2^32."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4]
    address = libc.mmap(None, 4096, 3, 0x62, -1, 0)  # to read and write; private, without a file, MAP_32BIT
    low = torch.frombuffer((ctypes.c_float * 36).from_address(address), dtype=torch.float32).view(4, 3, 3)
    assert low.data_ptr() < 2**32
    low.copy_(torch.randn(4, 3, 3))
    layer = gg.LSTM(3, 5)
    with torch.no_grad():
        expected, _ = layer(low.clone())
        torch.testing.assert_close(torch.stack([*map(torch.clone, map(layer.stream(3).step, low))]), expected)
        torch.testing.assert_close(layer.stream(3).run(low), expected)
        torch.testing.assert_close(gg.freeze(layer)(low)[0], expected)
        torch.testing.assert_close(layer(low)[0], expected)
