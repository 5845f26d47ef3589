"""Clones of lowered modules, and the signatures of their methods."""

import gc
import inspect
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, saved_and_loaded, scripted_copy, step
from support.nets import Residual

# ---- clone ----


class Tied(nn.Module):
    """Has parameters that are one tensor, one that is frozen, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.second(torch.tanh(self.first(x))))


@pytest.mark.parametrize("way", ["lowered", "scripted", "half", "loaded"])
@pytest.mark.lowered_only
def test_a_clone_trains_by_itself_as_the_module_does(way: str) -> None:
    net: Any = Tied()
    module: Any = {
        "lowered": lambda: lowered_copy(net, "all"),
        "scripted": lambda: scripted_copy(net),
        "half": lambda: torch.jit.script(nn.Sequential(lowered_copy(net, "all"), nn.Identity())),
        "loaded": lambda: saved_and_loaded(lowered_copy(net, "segments")),
    }[way]()
    x = torch.rand(8, 16)
    module(x).sum().backward()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    copied = aten_recompute.clone(module)

    ours, theirs = dict(copied.named_parameters()), dict(module.named_parameters())
    assert list(ours) == list(theirs)
    for name, parameter in ours.items():
        assert parameter.is_leaf
        assert parameter.grad is None
        assert parameter.requires_grad == theirs[name].requires_grad
        assert torch.equal(parameter, theirs[name])
        assert parameter.data_ptr() != theirs[name].data_ptr()
    assert len({id(value) for value in copied.parameters()}) == len({id(value) for value in module.parameters()})

    optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
    expected = step(module, list(module.parameters()), (x,))
    module.load_state_dict(before)  # the step has changed the statistics
    found = step(copied, list(copied.parameters()), (x,))
    if way == "scripted":  # TorchScript's executor rounds differently from the second call on
        torch.testing.assert_close(found, expected)
    else:
        assert_same(found[1], expected[1])
    optimizer.step()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not torch.equal(next(copied.parameters()), next(module.parameters()))


@pytest.mark.lowered_only
def test_a_clone_is_lowered_and_a_container() -> None:
    lowered = lowered_copy(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), "all")
    copied: Any = aten_recompute.clone(lowered.eval())
    assert len(copied) == 2
    assert copied[0].weight.shape == (16, 16)
    assert not copied.training
    assert aten_recompute.report(copied)["methods"][0]["options"]["strategy"] == "all"


@pytest.mark.lowered_only
def test_a_clone_keeps_the_layers_that_tags_define() -> None:
    scripted = aten_recompute.inject_layer_tags(scripted_copy(Residual()), r"blocks\.[13]")
    options = [
        aten_recompute.report(aten_recompute.lower(each, "layers"))["methods"][0]["options"]
        for each in (scripted, aten_recompute.clone(scripted))
    ]
    assert options[0] == options[1]
    assert options[1]["pattern"] == r"blocks\.[13]"


def test_clone_takes_script_modules_only() -> None:
    with pytest.raises(TypeError, match="clone takes a scripted or traced module"):
        aten_recompute.clone(Residual())  # type: ignore[arg-type]


# ---- signatures ----


@pytest.mark.parametrize("way", ["lowered", "unlowered", "clone", "loaded"])
def test_methods_have_signatures(way: str, tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor, scale: float = 2.0, bias: Tensor | None = None) -> Tensor:
            h = self.layer(x) * scale
            return h if bias is None else h + bias

        @torch.jit.export
        def encode(self, x: Tensor) -> Tensor:
            return self.layer(x)

    scripted = scripted_copy(Model())
    module: Any = aten_recompute.lower(scripted, "all")
    if way == "unlowered":
        module = aten_recompute.unlower(module)
    elif way == "clone":
        module = aten_recompute.clone(module)
    elif way == "loaded":
        module.save(str(tmp_path / "model.pt"))
        module = aten_recompute.load(tmp_path / "model.pt")
    signature = inspect.signature(module.forward)
    assert list(signature.parameters) == ["x", "scale", "bias"]
    assert signature.parameters["scale"].default == 2.0
    assert signature.parameters["bias"].default is None
    assert signature.parameters["x"].default is inspect.Parameter.empty
    assert list(inspect.signature(module.encode).parameters) == ["x"]
    assert list(inspect.signature(module.layer.forward).parameters) == ["input"]
    if way != "loaded":
        assert signature == inspect.signature(scripted.forward)
    x = torch.rand(2, 4)
    assert torch.equal(module(x=x, scale=3.0), scripted(x, 3.0))
    assert torch.equal(module.forward(x), scripted(x))
    assert torch.equal(module.encode(x), scripted.encode(x))


def test_traced_methods_have_signatures() -> None:
    lowered = aten_recompute.lower(torch.jit.trace(nn.Linear(4, 4), torch.rand(2, 4)), "all")
    assert list(inspect.signature(lowered.forward).parameters) == ["input"]
    x = torch.rand(2, 4)
    assert torch.equal(lowered(input=x), lowered(x))


def test_signatures_keep_no_module_alive() -> None:
    net = Residual()
    alive = weakref.ref(net)
    lowered = aten_recompute.lower(torch.jit.script(net), "all")
    del net
    gc.collect()
    assert alive() is None
    lowered(torch.rand(2, 16))
