"""Prepared workloads of torch layers: a layer, a language model, and a stream. Modules of peers choose the layer."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from experiments.speed import workload as workloads
from experiments.speed.workload import Workload, draw

BYTES = 256
"""The vocabulary size of the language model."""


class Layer:
    """A module of one or several layers, with its weights, inputs and states.

    Args:
        workload: the computation.
        layer: the module. Its weights are replaced by random numbers that depend on their names.
        states: the names of the states, the output first.
        call: a function of (input, hx, resets) that returns (output, final states).
        shapes: the shape of each state of a sequence; None for one number per unit.
    """

    def __init__(
        self,
        workload: Workload,
        layer: nn.Module,
        states: tuple[str, ...],
        call: Callable[..., Any],
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        self.workload, self.layer, self.states, self.call = workload, layer, states, call
        self.training = workload.do == "training"
        layer.train(workload.do in ("training", "model"))
        dtype = getattr(torch, workload.dtype)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if name.startswith(("weight", "bias")):
                    parameter.copy_(torch.from_numpy(workloads.weight(name, workload.H, *parameter.shape)))
                else:
                    parameter.add_(torch.from_numpy(draw(name, *parameter.shape, scale=0.1)))
        out, rows = workload.proj or workload.H, (workload.layers * workload.directions, workload.N)
        self.input = self._input().to(dtype)
        shapes = [(out,)] + [(workload.H,)] * (len(states) - 1) if shapes is None else shapes
        self.initial = {
            f"{s}_0": torch.from_numpy(draw(f"{s}_0", *rows, *shape)).to(dtype)
            for s, shape in zip(states, shapes, strict=True)
        }
        self.resets = torch.from_numpy(workloads.resets(workload)) if workload.resets else None
        if self.training:
            self.leaves = {"input": self.input, **self.initial}
            for leaf in self.leaves.values():
                leaf.requires_grad_()
            self.leaves |= dict(layer.named_parameters())
            output = draw("d output", *self.input.shape[:-1], workload.directions * out)
            upstream = [
                output,
                *(draw(f"d {s}_n", *v.shape) for s, v in zip(states, self.initial.values(), strict=True)),
            ]
            self.upstream = [torch.from_numpy(v).to(self._dtype_of_results()) for v in upstream]

    def _dtype_of_results(self) -> torch.dtype:
        return (
            torch.bfloat16
            if self.workload.autocast and self.workload.dtype == "float32"
            else getattr(torch, self.workload.dtype)
        )

    def _input(self) -> Tensor:
        workload = self.workload
        padded = torch.from_numpy(draw("input", workload.L, workload.N, workload.inputs))
        if not workload.ragged:
            return padded
        self.packed = pack_padded_sequence(padded, torch.from_numpy(workloads.lengths(workload)), enforce_sorted=False)
        return self.packed.data

    def keep_end(self, steps: int) -> None:
        """Keep only the last steps of the input, and replace the initial states by zeros."""
        self.input = self.input[-steps:].contiguous()
        self.initial = {name: torch.zeros_like(value) for name, value in self.initial.items()}

    def forward(self) -> dict[str, Tensor]:
        """Return the output and the final states by name."""
        input = PackedSequence(self.input, *self.packed[1:]) if self.workload.ragged else self.input
        hx = tuple(self.initial.values())
        with torch.autocast("cpu", torch.bfloat16, enabled=self.workload.autocast):
            output, final = self.call(input, hx if len(hx) > 1 else hx[0], self.resets)
        final = final if isinstance(final, tuple) else (final,)
        output = output.data if isinstance(output, PackedSequence) else output
        return {"output": output} | {f"{s}_n": v for s, v in zip(self.states, final, strict=True)}

    def run(self) -> dict[str, Tensor]:
        """Compute one training step with all gradients, or one forward pass without a graph."""
        with self.on_engine():
            if not self.training:
                with torch.no_grad():
                    return self.forward()
            outputs = self.forward()
            values, leaves = list(outputs.values()), list(self.leaves.values())
            gradients = torch.autograd.grad(values, leaves, self.upstream, materialize_grads=True, allow_unused=True)
        return outputs | {f"grad {name}": g for name, g in zip(self.leaves, gradients, strict=True)}

    def on_engine(self) -> AbstractContextManager[None]:
        """Return the context in which the layer is called."""
        return nullcontext()

    def results(self) -> dict[str, Tensor]:
        """Return all results of `run`. Noise is drawn from a fixed seed."""
        torch.manual_seed(0)
        return {name: value.detach() for name, value in self.run().items()}


class Model:
    """A language model of bytes and its training: an embedding, a layer, a linear layer, cross entropy and Adam.

    Args:
        subject: the layer with its weights.
    """

    def __init__(self, subject: Layer) -> None:
        workload, dtype = subject.workload, getattr(torch, subject.workload.dtype)
        self.subject = subject
        self.embedding = nn.Embedding(BYTES, workload.inputs, dtype=dtype)
        self.linear = nn.Linear(workload.directions * (workload.proj or workload.H), BYTES, dtype=dtype)
        self.whole = nn.ModuleList([self.embedding, subject.layer, self.linear])
        with torch.no_grad():
            for name, parameter in [*self.embedding.named_parameters("embedding"), *self.linear.named_parameters()]:
                parameter.copy_(torch.from_numpy(workloads.weight(f"model {name}", workload.H, *parameter.shape)))
        self.initial = {name: parameter.detach().clone() for name, parameter in self.whole.named_parameters()}
        self.bytes = torch.from_numpy(draw("bytes", workload.L + 1, workload.N)).mul(40).long() % BYTES
        self.optimizer = torch.optim.Adam(self.whole.parameters())

    def loss(self) -> Tensor:
        """Compute the loss of predicting each byte from the previous bytes."""
        subject = self.subject
        subject.input = self.embedding(self.bytes[:-1])
        return cross_entropy(self.linear(subject.forward()["output"]).flatten(0, 1), self.bytes[1:].flatten())

    def run(self) -> Tensor:
        """Compute one training step."""
        with self.subject.on_engine():
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        return loss

    def results(self) -> dict[str, Tensor]:
        """Return the loss at the initial weights, and its gradients."""
        self.whole.load_state_dict(self.initial)
        with self.subject.on_engine():
            loss = self.loss()
            gradients = torch.autograd.grad(loss, list(self.whole.parameters()))
        names = (name for name, _ in self.whole.named_parameters())
        return {"loss": loss.detach()} | dict(zip(names, gradients, strict=True))


class Stream:
    """A stream of single steps. `run` computes one step, and `results` computes all L steps from zero states.

    Args:
        workload: the computation.
        layer: the module with its weights.
        start: a function that starts a stream and returns its step function, from (N, H_in) to (N, H_out).
    """

    def __init__(self, workload: Workload, layer: nn.Module, start: Callable[[], Callable[[Tensor], Tensor]]) -> None:
        self.input = torch.from_numpy(draw("input", workload.L, workload.N, workload.inputs)).to(
            getattr(torch, workload.dtype)
        )
        self.first_input, self.start, self.step = self.input[0].clone(), start, start()

    def run(self) -> Tensor:
        """Compute one step."""
        return self.step(self.first_input)

    def results(self) -> dict[str, Tensor]:
        """Return the outputs of all steps."""
        step = self.start()
        return {"output": torch.stack([step(x).clone() for x in self.input])}
