"""The benchmark models: they build, script and train one step in eager mode."""

import copy

import pytest
import torch

from benchmarks import models


@pytest.fixture(params=models.NAMES)
def workload(request) -> models.Workload:
    return models.make(request.param, size="small")


def gradients(module: torch.nn.Module) -> dict:
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


def test_one_eager_step_gives_every_parameter_a_finite_gradient(workload):
    loss = workload.step(workload.module)

    assert loss.dim() == 0
    assert torch.isfinite(loss)
    for name, parameter in workload.module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_scripted_step_equals_eager(workload, reseed):
    """The first call only: from the second on TorchScript's executor fuses, and may draw dropout in another order."""
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
        torch.testing.assert_close(actual[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


def test_making_a_model_is_deterministic_and_leaves_the_random_state_alone(workload):
    before = torch.get_rng_state()
    again = models.make(workload.name, size="small")

    assert torch.equal(torch.get_rng_state(), before)
    for first, second in zip(workload.inputs, again.inputs):
        assert torch.equal(first, second)
    state = again.module.state_dict()
    for name, tensor in workload.module.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_small_models_are_small(workload):
    assert sum(parameter.numel() for parameter in workload.module.parameters()) < 300_000


def test_full_sizes_are_the_documented_ones():
    # ResNet-50 of torchvision: 25 557 032 parameters with 1000 classes.
    assert sum(parameter.numel() for parameter in models.make("resnet50").module.parameters()) == 25_557_032
    # DenseNet-121 of torchvision: 7 978 856 parameters with 1000 classes.
    assert sum(parameter.numel() for parameter in models.make("densenet121").module.parameters()) == 7_978_856
    gpt = models.make("gpt")
    assert len(gpt.module.blocks) == 6
    assert [tuple(tensor.shape) for tensor in gpt.inputs] == [(8, 256), (8, 256)]


def test_transformer_ignores_padding():
    """Target tokens that are padding are neither asked for nor seen, and padded source tokens are not seen."""
    workload = models.make("transformer", size="small")
    workload.module.eval()
    source, target = workload.inputs
    assert (source == models.PADDING).any()
    assert (target == models.PADDING).any()
    expected = workload.module(source, target)

    padded = torch.cat([source, source.new_full((source.size(0), 3), models.PADDING)], dim=1)
    # Three more positions than the context of the small model.
    longer = models.Transformer(layers=2, width=32, heads=2, inner=64, vocabulary=50, context=padded.size(1))
    state = {
        name: tensor for name, tensor in workload.module.state_dict().items() if name not in ("positions", "future")
    }
    longer.load_state_dict(state, strict=False)
    longer.eval()
    torch.testing.assert_close(longer(padded, target), expected)


def test_bert_asks_only_for_masked_tokens():
    workload = models.make("bert", size="small")
    workload.module.eval()
    tokens, types, targets = workload.inputs
    asked = targets != -100
    assert asked.any()
    assert not asked.all()
    assert (tokens[asked] == 1).all()
    assert (tokens == models.PADDING).any()
    expected = workload.module(tokens, types, targets)

    # A row that asks for nothing takes no part.
    unasked = torch.full_like(targets[:1], -100)
    more = [torch.cat([tokens, tokens[:1]]), torch.cat([types, types[:1]]), torch.cat([targets, unasked])]
    torch.testing.assert_close(workload.module(*more), expected)


def test_unet_and_densenet_keep_their_shapes():
    unet = models.make("unet", size="small")
    images = unet.inputs[0]
    assert unet.module(images).shape == (images.size(0), 3, *images.shape[2:])
    densenet = models.make("densenet121", size="small")
    assert densenet.module(densenet.inputs[0]).shape == (4, 10)


def test_unknown_name_and_size_are_named():
    names = "gpt, resnet50, mlp, mlp_loss, transformer, unet"
    with pytest.raises(ValueError, match=f"no model is called 'lstm'; there are {names}"):
        models.make("lstm")
    with pytest.raises(ValueError, match="no size is called 'tiny'; there are full, small"):
        models.make("gpt", size="tiny")
