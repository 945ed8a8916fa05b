"""Hooks, and with `make clients` Captum, give the same results on these layers as on torch's."""

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from tests.compare import check, noise

V, D, H, L, N = 11, 5, 6, 7, 3
KINDS = {
    "LSTM": {"num_layers": 2, "bidirectional": True},
    "GRU": {"bidirectional": True},
    "RNN": {"num_layers": 2},
}


class Classifier(nn.Module):
    """Words to classes; `home` is glassgate or torch.nn."""

    def __init__(self, home, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, D)
        self.encoder = getattr(home, kind)(D, H, batch_first=True, **KINDS[kind])
        self.head = nn.Linear(H * (1 + KINDS[kind].get("bidirectional", False)), 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.of_vectors(self.embedding(words))

    def of_vectors(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x)[0].mean(1))


def both(kind: str) -> tuple[Classifier, Classifier]:
    """The same model on torch's layer and on ours, which runs on the kernels."""
    torch.manual_seed(0)
    theirs, ours = Classifier(nn, kind).double(), Classifier(gg, kind).double()
    ours.load_state_dict(theirs.state_dict())
    assert gg.explain(ours.encoder, noise(0, N, L, D)).engine == "cpu"
    return theirs, ours


@pytest.mark.clients
@pytest.mark.parametrize("kind", KINDS)
def test_attributions_are_those_of_torch_s_layers(kind):
    from captum.attr import IntegratedGradients, LayerActivation, LayerIntegratedGradients, Saliency

    theirs, ours = both(kind)
    words = torch.randint(V, (N, L), generator=torch.Generator().manual_seed(1))
    x = noise(1, N, L, D)

    def attributions(model):
        layer_ig = LayerIntegratedGradients(model, model.embedding)
        of_words, delta = layer_ig.attribute(
            words, torch.zeros_like(words), target=2, n_steps=16, return_convergence_delta=True
        )
        return {
            "layer integrated gradients": of_words,
            "their convergence": delta,
            "integrated gradients": IntegratedGradients(model.of_vectors).attribute(x, target=1, n_steps=16),
            "saliency": Saliency(model.of_vectors).attribute(x.clone().requires_grad_(), target=3),
            "activation before the head": LayerActivation(model, model.head).attribute(words),
        }

    check(
        {k: v.detach() for k, v in attributions(ours).items()}, {k: v.detach() for k, v in attributions(theirs).items()}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_see_and_change_what_they_do_on_torch_s_layers(kind):
    theirs, ours = both(kind)
    words = torch.randint(V, (N, L), generator=torch.Generator().manual_seed(1))

    def hooked(model):
        seen = {}

        def before(module, args):
            seen["input"] = args[0].detach()
            return (args[0] * 2,)

        def after(module, args, result):
            output, final = result
            states = final if isinstance(final, tuple) else (final,)
            seen.update({"output": output.detach(), **{f"state {k}": v.detach() for k, v in enumerate(states)}})
            return output.clamp(-0.1, 0.1), final

        def backward(module, d_input, d_output):
            seen.update({"d_input": d_input[0], "d_output": d_output[0]})

        hooks = [
            model.encoder.register_forward_pre_hook(before),
            model.encoder.register_forward_hook(after),
            model.encoder.register_full_backward_hook(backward),
        ]
        result = model(words)
        result.square().sum().backward()
        for hook in hooks:
            hook.remove()
        return {**seen, "result": result.detach(), "d_embedding": model.embedding.weight.grad}

    check(hooked(ours), hooked(theirs))


@pytest.mark.clients
@pytest.mark.parametrize("kind", KINDS)
def test_relevance_equals_captum_s(kind):
    from captum.attr import InputXGradient, IntegratedGradients

    _, ours = both(kind)
    words = torch.randint(V, (N, L), generator=torch.Generator().manual_seed(1))
    x = ours.embedding(words).detach()
    integrated = IntegratedGradients(ours.of_vectors)
    wanted = {
        "integrated": integrated.attribute(x, target=2, n_steps=16, method="riemann_middle"),
        "gradient": InputXGradient(ours.of_vectors).attribute(x.clone().requires_grad_(), target=2).detach(),
    }
    for method, features in wanted.items():
        relevance = gg.dynamics.relevance(ours, words, 2, method=method, points=16)
        assert torch.allclose(relevance.features, features, rtol=0, atol=1e-12 * features.abs().max()), method
