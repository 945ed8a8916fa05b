"""A torch layer as a subject: its weights, one call, all results. The modules ours, stock and loop choose the layer."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks import work as works
from benchmarks.work import Work, draw

BYTES = 256


class Layer:
    """One layer (or stack), with its weights, inputs and states.

    Args:
        work: the computation.
        layer: the module; its weights are replaced by random numbers that depend on their names.
        states: names of the states, the output first.
        call: (input, hx, resets) to (output, final states).
    """

    def __init__(self, work: Work, layer: nn.Module, states: tuple[str, ...], call: Callable[..., Any]) -> None:
        self.work, self.layer, self.states, self.call = work, layer, states, call
        self.training = work.do == "training"
        layer.train(work.do in ("training", "model"))
        dtype = getattr(torch, work.dtype)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if name.startswith(("weight", "bias")):
                    parameter.copy_(torch.from_numpy(works.weight(name, work.H, *parameter.shape)))
                else:
                    parameter.add_(torch.from_numpy(draw(name, *parameter.shape, scale=0.1)))
        out, rows = work.proj or work.H, (work.layers * work.directions, work.N)
        self.input = self._input().to(dtype)
        widths = [out] + [work.H] * (len(states) - 1)
        self.initial = {
            f"{s}_0": torch.from_numpy(draw(f"{s}_0", *rows, width)).to(dtype)
            for s, width in zip(states, widths, strict=True)
        }
        self.resets = torch.from_numpy(works.resets(work)) if work.resets else None
        if self.training:
            self.leaves = {"input": self.input, **self.initial}
            for leaf in self.leaves.values():
                leaf.requires_grad_()
            self.leaves |= dict(layer.named_parameters())
            output = draw("d output", *self.input.shape[:-1], work.directions * out)
            upstream = [
                output,
                *(draw(f"d {s}_n", *v.shape) for s, v in zip(states, self.initial.values(), strict=True)),
            ]
            self.upstream = [torch.from_numpy(v).to(self._dtype_of_results()) for v in upstream]

    def _dtype_of_results(self) -> torch.dtype:
        return (
            torch.bfloat16 if self.work.autocast and self.work.dtype == "float32" else getattr(torch, self.work.dtype)
        )

    def _input(self) -> Tensor:
        work = self.work
        padded = torch.from_numpy(draw("input", work.L, work.N, work.inputs))
        if not work.ragged:
            return padded
        self.packed = pack_padded_sequence(padded, torch.from_numpy(works.lengths(work)), enforce_sorted=False)
        return self.packed.data

    def keep_end(self, steps: int) -> None:
        """Keep only the last steps, and start them from zero states."""
        self.input = self.input[-steps:].contiguous()
        self.initial = {name: torch.zeros_like(value) for name, value in self.initial.items()}

    def forward(self) -> dict[str, Tensor]:
        """Return the output and the final states by name."""
        input = PackedSequence(self.input, *self.packed[1:]) if self.work.ragged else self.input
        hx = tuple(self.initial.values())
        with torch.autocast("cpu", torch.bfloat16, enabled=self.work.autocast):
            output, final = self.call(input, hx if len(hx) > 1 else hx[0], self.resets)
        final = final if isinstance(final, tuple) else (final,)
        output = output.data if isinstance(output, PackedSequence) else output
        return {"output": output} | {f"{s}_n": v for s, v in zip(self.states, final, strict=True)}

    def run(self) -> dict[str, Tensor]:
        """One training step (every gradient) or one forward pass without a graph."""
        with self.on_engine():
            if not self.training:
                with torch.no_grad():
                    return self.forward()
            outputs = self.forward()
            gradients = torch.autograd.grad(list(outputs.values()), list(self.leaves.values()), self.upstream)
        return outputs | {f"grad {name}": g for name, g in zip(self.leaves, gradients, strict=True)}

    def on_engine(self) -> AbstractContextManager[None]:
        """Return the context in which the layer is called."""
        return nullcontext()

    def results(self) -> dict[str, Tensor]:
        """Return all results of `run`; noise is drawn from a fixed seed."""
        torch.manual_seed(0)
        return {name: value.detach() for name, value in self.run().items()}


class Model:
    """A language model of bytes around a layer, and its training: embedding, layer, linear layer, loss, Adam.

    Args:
        subject: a layer with its weights.
    """

    def __init__(self, subject: Layer) -> None:
        work, dtype = subject.work, getattr(torch, subject.work.dtype)
        self.subject = subject
        self.embedding = nn.Embedding(BYTES, work.inputs, dtype=dtype)
        self.linear = nn.Linear(work.directions * (work.proj or work.H), BYTES, dtype=dtype)
        self.whole = nn.ModuleList([self.embedding, subject.layer, self.linear])
        with torch.no_grad():
            for name, parameter in [*self.embedding.named_parameters("embedding"), *self.linear.named_parameters()]:
                parameter.copy_(torch.from_numpy(works.weight(f"model {name}", work.H, *parameter.shape)))
        self.first = {name: parameter.detach().clone() for name, parameter in self.whole.named_parameters()}
        self.bytes = torch.from_numpy(draw("bytes", work.L + 1, work.N)).mul(40).long() % BYTES
        self.optimizer = torch.optim.Adam(self.whole.parameters())

    def loss(self) -> Tensor:
        """Return the loss of predicting each byte from the previous ones."""
        subject = self.subject
        subject.input = self.embedding(self.bytes[:-1])
        return cross_entropy(self.linear(subject.forward()["output"]).flatten(0, 1), self.bytes[1:].flatten())

    def run(self) -> Tensor:
        """One training step."""
        with self.subject.on_engine():
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        return loss

    def results(self) -> dict[str, Tensor]:
        """Return the loss at the initial weights, and its gradients."""
        self.whole.load_state_dict(self.first)
        with self.subject.on_engine():
            loss = self.loss()
            gradients = torch.autograd.grad(loss, list(self.whole.parameters()))
        names = (name for name, _ in self.whole.named_parameters())
        return {"loss": loss.detach()} | dict(zip(names, gradients, strict=True))


class Stream:
    """Single steps from a zero state: `run` takes one, `results` takes all from the beginning.

    Args:
        work: the computation; its L steps are checked.
        layer: the module with its weights.
        start: returns a new function from (N, H_in) to (N, H_out).
    """

    def __init__(self, work: Work, layer: nn.Module, start: Callable[[], Callable[[Tensor], Tensor]]) -> None:
        self.input = torch.from_numpy(draw("input", work.L, work.N, work.inputs)).to(getattr(torch, work.dtype))
        self.first, self.start, self.step = self.input[0].clone(), start, start()

    def run(self) -> Tensor:
        """One step."""
        return self.step(self.first)

    def results(self) -> dict[str, Tensor]:
        """The outputs of all steps."""
        step = self.start()
        return {"output": torch.stack([step(x).clone() for x in self.input])}
