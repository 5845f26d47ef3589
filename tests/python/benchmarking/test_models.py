"""The benchmark models can be built, scripted and trained for a step in eager."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch

from benchmarks import models
from benchmarks.networks.gpt import GPT
from benchmarks.networks.transformer import PADDING, Transformer


@pytest.fixture(params=models.NAMES)
def workload(request: pytest.FixtureRequest) -> models.Workload:
    return models.make(request.param, size="small")


def gradients(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def test_one_eager_step_gives_every_parameter_a_finite_gradient(workload: models.Workload) -> None:
    loss = workload.step(workload.module)

    assert loss.dim() == 0
    assert torch.isfinite(loss)
    for name, parameter in workload.module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_a_scripted_step_equals_eager(workload: models.Workload, reseed: Callable[[], None]) -> None:
    """Only the first call is compared: later, TorchScript fuses operators, and may draw dropout in another order."""
    eager = copy.deepcopy(workload.module)
    scripted = torch.jit.script(workload.module)
    reseed()
    eager_loss = workload.step(eager)
    reseed()
    scripted_loss = workload.step(scripted)

    torch.testing.assert_close(scripted_loss, eager_loss)
    expected = gradients(eager)
    actual = gradients(scripted)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=partial("{}: {}".format, name))


def test_making_a_model_is_deterministic_and_keeps_the_random_state(workload: models.Workload) -> None:
    before = torch.get_rng_state()
    again = models.make(workload.name, size="small")

    assert torch.equal(torch.get_rng_state(), before)
    for first, second in zip(workload.inputs, again.inputs, strict=True):
        assert torch.equal(first, second)
    state = again.module.state_dict()
    for name, tensor in workload.module.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_small_models_have_few_parameters(workload: models.Workload) -> None:
    assert sum(parameter.numel() for parameter in workload.module.parameters()) < 300_000


def test_full_models_have_the_documented_sizes() -> None:
    # torchvision's ResNet-50 has 25 557 032 parameters with 1000 classes.
    assert sum(parameter.numel() for parameter in models.make("resnet50").module.parameters()) == 25_557_032
    # torchvision's DenseNet-121 has 7 978 856 parameters with 1000 classes.
    assert sum(parameter.numel() for parameter in models.make("densenet121").module.parameters()) == 7_978_856
    # torchvision's MobileNetV2 has 3 504 872 parameters with 1000 classes.
    assert sum(parameter.numel() for parameter in models.make("mobilenet").module.parameters()) == 3_504_872
    gpt = models.make("gpt")
    assert isinstance(gpt.module, GPT)
    assert len(gpt.module.blocks) == 6
    assert [tuple(tensor.shape) for tensor in gpt.inputs] == [(8, 256), (8, 256)]


def test_the_transformer_ignores_padding() -> None:
    """Padding in the target is neither predicted nor read, and padding in the source is not read."""
    workload = models.make("transformer", size="small")
    workload.module.eval()
    source, target = workload.inputs
    assert torch.any(source == PADDING)
    assert torch.any(target == PADDING)
    expected = workload.module(source, target)

    padded = torch.cat([source, source.new_full((source.size(0), 3), PADDING)], dim=1)
    # The longer model has room for three more positions than the small one.
    longer = Transformer(layers=2, width=32, heads=2, inner=64, vocabulary=50, context=padded.size(1))
    state = {
        name: tensor for name, tensor in workload.module.state_dict().items() if name not in ("positions", "future")
    }
    longer.load_state_dict(state, strict=False)
    longer.eval()
    torch.testing.assert_close(longer(padded, target), expected)


def test_bert_predicts_masked_tokens_only() -> None:
    workload = models.make("bert", size="small")
    workload.module.eval()
    tokens, types, targets = workload.inputs
    asked = targets != -100
    assert asked.any()
    assert not asked.all()
    assert (tokens[asked] == 1).all()
    assert torch.any(tokens == PADDING)
    expected = workload.module(tokens, types, targets)

    # A row without tokens to predict does not change the loss.
    unasked = torch.full_like(targets[:1], -100)
    more = [torch.cat([tokens, tokens[:1]]), torch.cat([types, types[:1]]), torch.cat([targets, unasked])]
    torch.testing.assert_close(workload.module(*more), expected)


def test_outputs_of_unet_and_densenet_have_the_right_shapes() -> None:
    unet = models.make("unet", size="small")
    images = unet.inputs[0]
    assert unet.module(images).shape == (images.size(0), 3, *images.shape[2:])
    densenet = models.make("densenet121", size="small")
    assert densenet.module(densenet.inputs[0]).shape == (4, 10)


def test_an_unknown_name_or_size_raises() -> None:
    names = "gpt, resnet50, mlp, mlp_loss, transformer, unet"
    with pytest.raises(ValueError, match=f"no model is called 'lstm'; there are {names}"):
        models.make("lstm")
    with pytest.raises(ValueError, match="no size is called 'tiny'; there are large, full, small"):
        models.make("gpt", size="tiny")
