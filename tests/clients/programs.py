"""Training runs of other libraries, which differ only in their layers: those of `torch.nn` or of Glassgate."""

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import glassgate as gg


class Program(NamedTuple):
    """A training run. `prepare(nn)` or `prepare(gg)` returns a function that trains and returns numbers."""

    title: str
    how: str
    prepare: Callable[[ModuleType], Callable[[], Tensor]]
    close: float = 1e-5
    """The largest allowed difference, relative to the largest number."""


@contextmanager
def exchanged(library: ModuleType, **names: Any) -> Iterator[None]:
    """Replace names of `torch.nn` by our layers inside the block if `library` is Glassgate."""
    before = {name: getattr(nn, name) for name in names}
    try:
        for name, layer in names.items() if library is gg else ():
            setattr(nn, name, layer)
        yield
    finally:
        for name, layer in before.items():
            setattr(nn, name, layer)


def weights(model: nn.Module) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def recurrent_ppo(library: ModuleType, one_call: bool = False) -> Callable[[], Tensor]:
    """RecurrentPPO of stable-baselines3 on CartPole; returns the policy's weights."""
    from sb3_contrib import RecurrentPPO
    from sb3_contrib.ppo_recurrent import MlpLstmPolicy

    class OneCall(MlpLstmPolicy):
        """Reads a sequence in one call, because episodes start only at the start of a sequence."""

        @staticmethod
        def _process_sequence(features: Tensor, lstm_states: Any, episode_starts: Tensor, lstm: nn.Module) -> Any:
            sequences = lstm_states[0].shape[1]
            x = features.reshape(sequences, -1, lstm.input_size).swapaxes(0, 1)
            keep = 1 - episode_starts.reshape(sequences, -1)[:, 0].view(1, sequences, 1)
            output, states = lstm(x, tuple(keep * state for state in lstm_states))
            return output.transpose(0, 1).flatten(0, 1), states

    policy = OneCall if one_call else MlpLstmPolicy
    sizes = {"n_steps": 128, "batch_size": 128, "n_epochs": 4, "policy_kwargs": {"lstm_hidden_size": 64}}
    agent = RecurrentPPO(policy, "CartPole-v1", seed=1, device="cpu", **sizes)
    if library is gg:
        gg.convert(agent.policy)
    return lambda: weights(agent.learn(1024).policy)


def one_call_ppo(library: ModuleType) -> Callable[[], Tensor]:
    """RecurrentPPO with one call per sequence."""
    return recurrent_ppo(library, one_call=True)


def darts(kind: str, block: bool) -> Callable[[ModuleType], Callable[[], Tensor]]:
    """Darts' RNNModel or BlockRNNModel on two waves; returns forecasts."""

    def prepare(library: ModuleType) -> Callable[[], Tensor]:
        from darts import TimeSeries
        from darts.models import BlockRNNModel, RNNModel

        steps = np.arange(1200)
        series = TimeSeries.from_values((np.sin(steps / 8) + 0.3 * np.sin(steps / 3)).astype("float32"))
        common = {"hidden_dim": 64, "n_epochs": 2, "random_state": 1, "pl_trainer_kwargs": QUIET}
        if block:
            model = BlockRNNModel(input_chunk_length=48, output_chunk_length=12, model=kind, **common)
        else:
            model = RNNModel(input_chunk_length=24, training_length=48, model=kind, **common)

        def train() -> Tensor:
            with exchanged(library, LSTM=gg.LSTM, GRU=gg.GRU):
                model.fit(series, verbose=False)
            return torch.tensor(model.predict(36, verbose=False).values())

        return train

    return prepare


def deep_ar(kind: str) -> Callable[[ModuleType], Callable[[], Tensor]]:
    """DeepAR of pytorch-forecasting, two layers, histories of unequal length; returns its weights."""

    def prepare(library: ModuleType) -> Callable[[], Tensor]:
        import lightning.pytorch as pl
        import pandas as pd
        import pytorch_forecasting.models.nn.rnn as layers
        from pytorch_forecasting import DeepAR, TimeSeriesDataSet

        with exchanged(library, LSTM=gg.LSTM, GRU=gg.GRU, RNNBase=gg.Recurrent):
            importlib.reload(layers)  # its classes inherit from classes of torch.nn
        rows = [
            pd.DataFrame({"t": np.arange(300), "g": str(i), "y": np.sin(np.arange(300) / 7 + i) + 2}) for i in range(4)
        ]
        data = TimeSeriesDataSet(
            pd.concat(rows, ignore_index=True),
            time_idx="t",
            target="y",
            group_ids=["g"],
            min_encoder_length=10,
            max_encoder_length=36,
            min_prediction_length=4,
            max_prediction_length=12,
            time_varying_unknown_reals=["y"],
        )
        pl.seed_everything(1, verbose=False)
        options = {"hidden_size": 64, "rnn_layers": 2, "dropout": 0.0, "learning_rate": 1e-2}
        model = DeepAR.from_dataset(data, cell_type=kind, **options)
        batches = data.to_dataloader(train=True, batch_size=64, num_workers=0)

        def train() -> Tensor:
            pl.Trainer(max_epochs=1, limit_train_batches=20, **QUIET).fit(model, batches)
            return weights(model)

        return train

    return prepare


class Masked(gg.LSTM):
    """An LSTM with the mask of valid steps that TorchRL passes to layers from outside of `torch.nn`."""

    def forward(self, input: Tensor, hx: Any = None, mask: Tensor | None = None) -> Any:
        return super().forward(input, hx, lengths=None if mask is None else mask.sum(1))


def torch_rl(library: ModuleType) -> Callable[[], Tensor]:
    """TorchRL's LSTMModule on 16 sequences, in which new episodes start; returns weights."""
    from tensordict import TensorDict
    from torchrl.modules import LSTMModule, set_recurrent_mode

    torch.manual_seed(1)
    layer = (Masked if library is gg else nn.LSTM)(16, 64, batch_first=True)
    module = LSTMModule(lstm=layer, in_keys=["seen", "h", "c"], out_keys=["out", ("next", "h"), ("next", "c")])
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    starts = torch.rand(16, 64, 1) < 0.03
    starts[:, 0] = True
    experience = TensorDict({"seen": torch.randn(16, 64, 16), "is_init": starts}, [16, 64])

    def train() -> Tensor:
        with set_recurrent_mode(True):
            for _ in range(20):
                optimizer.zero_grad()
                module(experience.clone())["out"].square().mean().backward()
                optimizer.step()
        return weights(layer)

    return train


PROGRAMS = [
    Program("stable-baselines3: RecurrentPPO, one call per step", "`gg.convert(agent.policy)`", recurrent_ppo),
    Program(
        "stable-baselines3: RecurrentPPO, one call per sequence",
        "`gg.convert(agent.policy)`, and the policy `OneCall` below",
        one_call_ppo,
    ),
    Program("darts: RNNModel, GRU", "`nn.GRU = gg.GRU`", darts("GRU", block=False)),
    Program("darts: RNNModel, LSTM", "`nn.LSTM = gg.LSTM`", darts("LSTM", block=False)),
    Program("darts: BlockRNNModel, GRU", "`nn.GRU = gg.GRU`", darts("GRU", block=True)),
    Program("darts: BlockRNNModel, LSTM", "`nn.LSTM = gg.LSTM`", darts("LSTM", block=True)),
    Program(
        "pytorch-forecasting: DeepAR, LSTM", "`torch.nn`'s names replaced before its import", deep_ar("LSTM"), 1e-4
    ),
    Program("pytorch-forecasting: DeepAR, GRU", "`torch.nn`'s names replaced before its import", deep_ar("GRU"), 1e-4),
    Program("TorchRL: LSTMModule, episodes of unequal length", "a class of four lines", torch_rl),
]


def trained(program: Program, library: ModuleType, clock: Callable[[], float] = lambda: 0.0) -> tuple[Tensor, float]:
    """Run a program. Returns its numbers, and the time of its training by `clock`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other libraries
        train = program.prepare(library)
        start = clock()
        return train(), clock() - start
