"""PyTorch's recurrent layers are one region, of which nothing is on the tape, and train as in eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import aten_recompute
from support.helpers import assert_same, lowered_copy

Layer = Callable[..., nn.Module]


class WithoutState(nn.Module):
    """The layer makes its first hidden state of zeros."""

    def __init__(self, layer: Layer, **options: Any) -> None:
        super().__init__()
        self.inner = layer(6, 10, **options)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x * 2.0)[0])


class WithState(nn.Module):
    def __init__(self, layer: Layer, **options: Any) -> None:
        super().__init__()
        self.inner = layer(6, 10, **options)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        y, last = self.inner(x * 2.0, h)
        return y, last


class LstmWithState(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.inner = nn.LSTM(6, 10, **options)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (last_h, last_c) = self.inner(x * 2.0, (h, c))
        return y, last_h, last_c


class Packed(nn.Module):
    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.inner = layer(6, 10)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y = self.inner(pack_padded_sequence(x * 2.0, lengths))[0]
        return pad_packed_sequence(y)[0]


LAYERS: dict[str, Layer] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "layers": {"num_layers": 3},
    "dropout": {"num_layers": 2, "dropout": 0.3},
    "both_directions": {"num_layers": 2, "bidirectional": True},
    "batch_first": {"batch_first": True, "bidirectional": True},
    "no_bias": {"bias": False, "num_layers": 2},
}


def sequence(length: int = 7, batch: int = 4) -> Tensor:
    return torch.randn(length, batch, 6)


def step(module: nn.Module, *inputs: Tensor) -> list[Tensor | None]:
    """Returns the outputs, and the gradients of inputs and parameters for random gradients of the outputs."""
    inputs = tuple(x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs)
    torch.manual_seed(5)
    result = module(*inputs)
    outputs = [result] if isinstance(result, Tensor) else list(result)
    sources = [x for x in inputs if x.requires_grad] + list(module.parameters())
    torch.manual_seed(6)
    return [
        *outputs,
        *torch.autograd.grad(outputs, sources, [torch.randn_like(y) for y in outputs], allow_unused=True),
    ]


def specializations(lowered: torch.jit.ScriptModule) -> list[Any]:
    return aten_recompute.report(lowered)["methods"][0]["specialisations"]


def assert_one_region_by_rules(lowered: torch.jit.ScriptModule) -> None:
    (specialization,) = specializations(lowered)
    (region,) = specialization["regions"]
    assert not specialization["breaks"]
    assert [variant["on_tape"] for variant in region["variants"]] == [[]] * len(region["variants"])


@pytest.mark.parametrize("strategy", ["none", "segments"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_layer_is_one_region_and_equals_eager(layer: str, options: str, strategy: str) -> None:
    eager = WithoutState(LAYERS[layer], **OPTIONS[options])
    lowered = lowered_copy(eager, strategy, fullgraph=True)
    x = sequence()
    assert_same(step(lowered, x), step(eager, x))
    assert_one_region_by_rules(lowered)


@pytest.mark.parametrize("options", ["plain", "both_directions"])
@pytest.mark.parametrize("layer", ["gru", "rnn"])
def test_a_state_that_is_given_gets_its_gradient(layer: str, options: str) -> None:
    eager = WithState(LAYERS[layer], **OPTIONS[options])
    lowered = lowered_copy(eager, "none")
    x, h = sequence(), torch.randn(4 if options == "both_directions" else 1, 4, 10)
    assert_same(step(lowered, x, h), step(eager, x, h))
    assert_one_region_by_rules(lowered)


@pytest.mark.parametrize("projection", [0, 3])
@pytest.mark.parametrize("options", ["plain", "both_directions", "no_bias"])
def test_states_that_are_given_to_an_lstm_get_their_gradients(options: str, projection: int) -> None:
    eager = LstmWithState(proj_size=projection, **OPTIONS[options])
    lowered = lowered_copy(eager, "none")
    cells = {"plain": 1, "both_directions": 4, "no_bias": 2}[options]
    inputs = sequence(), torch.randn(cells, 4, projection or 10), torch.randn(cells, 4, 10)
    assert_same(step(lowered, *inputs), step(eager, *inputs))
    assert_one_region_by_rules(lowered)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_sequence_without_a_batch_equals_eager(layer: str) -> None:
    eager = WithoutState(LAYERS[layer])
    lowered = lowered_copy(eager, "none")
    x = torch.randn(7, 6)
    assert_same(step(lowered, x), step(eager, x))
    assert_one_region_by_rules(lowered)


@pytest.mark.parametrize("layer", LAYERS)
def test_other_lengths_and_batches_need_no_other_specialization(layer: str) -> None:
    eager = WithoutState(LAYERS[layer], num_layers=2)
    lowered = lowered_copy(eager, "none")
    for length, batch in ((7, 4), (3, 4), (12, 1), (1, 5)):
        x = sequence(length, batch)
        assert_same(step(lowered, x), step(eager, x))
    (specialization,) = specializations(lowered)
    assert len(specialization["regions"][0]["variants"]) == 1


def test_an_lstm_follows_the_flag_of_onednn() -> None:
    eager = WithoutState(nn.LSTM, num_layers=2)
    lowered = lowered_copy(eager, "none")
    x = sequence()
    for enabled in (True, False, True):
        with torch.backends.mkldnn.flags(enabled=enabled):
            assert_same(step(lowered, x), step(eager, x))
    assert_one_region_by_rules(lowered)


@pytest.mark.parametrize("layer", LAYERS)
def test_evaluation_and_frozen_weights_equal_eager(layer: str) -> None:
    eager = WithoutState(LAYERS[layer], num_layers=2, dropout=0.5).eval()
    lowered = lowered_copy(eager, "none")
    x = sequence()
    assert_same(step(lowered, x), step(eager, x))
    with torch.no_grad():
        assert_same([lowered(x)], [eager(x)])
    for module in (eager, lowered):
        for parameter in module.parameters():
            parameter.requires_grad_(False)
    results = []
    for module in (lowered, eager):
        y = x.clone().requires_grad_()
        module(y).sum().backward()
        results.append([y.grad])
    assert_same(*results)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_packed_sequence_equals_eager(layer: str) -> None:
    eager = Packed(LAYERS[layer])
    lowered = lowered_copy(eager, "none")
    x, lengths = sequence(), torch.tensor([7, 5, 5, 2])
    assert_same(step(lowered, x, lengths), step(eager, x, lengths))


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_the_error_for_a_layer_by_itself_names_its_overloads(layer: str) -> None:
    scripted = torch.jit.script(LAYERS[layer](6, 10))
    message = (
        'the module has no method "forward" to lower, but overloads of it: lower "forward__0", "forward__1" by name, '
        "or a module that calls this one"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        aten_recompute.lower(scripted)


@pytest.mark.parametrize("layer", LAYERS)
def test_an_overload_of_a_layer_can_be_lowered_by_name(layer: str) -> None:
    eager = LAYERS[layer](6, 10)
    lowered = aten_recompute.lower(torch.jit.script(eager), "none", methods="forward__0")
    x = sequence()
    results = []
    for method, module in ((lowered.forward__0, lowered), (eager, eager)):
        module.zero_grad(set_to_none=True)
        y = method(x, None)[0]
        y.pow(2).sum().backward()
        results.append([y, *[parameter.grad for parameter in module.parameters()]])
        results[-1] = [value.clone() for value in results[-1]]
    assert_same(*results)
    assert_one_region_by_rules(lowered)
