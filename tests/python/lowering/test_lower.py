"""The functions of the package and PyTorch's own function for backends lower modules, which remain modules."""

import copy
import gc
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from torch import nn

import aten_recompute
from aten_recompute import _report_types
from support.helpers import assert_same, lowered_copy, num_regions, scripted_copy, step, tensors_in, to_backend
from support.nets import Containers, ConvNet, Residual, TwoMethods

# ---- a lowered module is a module ----


def test_a_lowered_module_has_the_names_and_tensors_of_the_original() -> None:
    scripted = scripted_copy(ConvNet())
    lowered = aten_recompute.lower(scripted, "segments")
    assert list(lowered.state_dict()) == list(scripted.state_dict())
    for (name, ours), (_, theirs) in zip(
        [*lowered.named_parameters(), *lowered.named_buffers()],
        [*scripted.named_parameters(), *scripted.named_buffers()],
        strict=True,
    ):
        assert ours is theirs, name


def test_parameters_and_buffers_of_the_module_itself_can_be_cast() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3))
            self.register_buffer("offset", torch.rand(3))
            self.power = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.weight + self.offset) ** self.power

    net = Direct()
    lowered = lowered_copy(net)
    assert set(lowered.state_dict()) == {"weight", "offset"}
    lowered.to(torch.float64)
    x = torch.rand(3, dtype=torch.float64)
    assert torch.equal(lowered(x), net.to(torch.float64)(x))


@torch.jit.script
def _leaky(x: torch.Tensor, by: float) -> torch.Tensor:
    if by > 1.0:
        x = x * 2
    return torch.where(x > 0, x, x * by)


def test_functions_outlive_the_module_that_they_were_loaded_with() -> None:
    """Functions that a method calls belong to the compilation unit of the module."""

    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _leaky(x, 0.1).square()

    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Calls()), buffer)
    buffer.seek(0)
    lowered = aten_recompute.lower(torch.jit.load(buffer), "none")
    gc.collect()  # the loaded module has no other owner
    x = torch.randn(3, 4, requires_grad=True)
    assert_same(torch.autograd.grad(lowered(x).sum(), [x]), torch.autograd.grad(Calls()(x).sum(), [x]))
    assert_same([copy.deepcopy(lowered)(x)], [Calls()(x)])


def test_train_eval_load_state_dict_and_double_work() -> None:
    net = ConvNet()
    lowered = lowered_copy(net, "segments")
    x = torch.rand(4, 3, 8, 8)
    assert lowered.training
    assert not lowered.eval().training
    assert torch.equal(lowered(x), net.eval()(x))
    lowered.train(), net.train()
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])
    lowered.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in lowered.parameters())
    other = ConvNet()
    lowered.load_state_dict(other.state_dict())
    expected = step(other, list(other.parameters()), (x,))
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])
    lowered.double(), other.double()
    expected = step(other, list(other.parameters()), (x.double(),))
    assert_same(step(lowered, list(lowered.parameters()), (x.double(),))[1], expected[1])


def test_an_optimizer_made_before_lowering_trains_the_lowered_module() -> None:
    net = Residual()
    scripted = scripted_copy(net)
    optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1)
    reference = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.rand(3, 16)
    for lowered in (aten_recompute.lower(scripted, "segments"), to_backend(scripted, "")):
        for module, optim in ((net, reference), (lowered, optimizer)):
            optim.zero_grad()
            module(x).square().sum().backward()
            optim.step()
        assert_same(list(scripted.parameters()), list(net.parameters()))


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    class TwiceTied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)))

    net = TwiceTied()
    lowered = lowered_copy(net, "all")
    lowered.save(str(tmp_path / "tied.pt"))
    x = torch.rand(2, 4)
    net(x).sum().backward()
    for module in (lowered, aten_recompute.load(tmp_path / "tied.pt")):
        module(x).sum().backward()
        assert_same([p.grad for p in module.parameters()], [net.a.weight.grad])


# ---- signatures ----


def test_methods_take_and_return_containers_and_have_default_arguments() -> None:
    net = Containers()
    lowered = lowered_copy(net, "all")
    batch = {"x": torch.rand(2, 4)}
    extras = [torch.rand(4), torch.rand(4)]
    for args, kwargs in (
        ((batch, extras), {}),
        ((batch, extras[:1]), {"scale": 3.0}),
        ((batch, extras, torch.rand(4)), {}),
        ((batch, []), {"bias": torch.rand(4), "scale": 0.5}),
    ):
        results: list[tuple[bool, list[torch.Tensor | None]]] = []
        for module in (net, lowered):
            module.zero_grad(set_to_none=True)
            outputs = module(*args, **kwargs)
            flat = tensors_in(outputs)
            sum(t.square().sum() for t in flat).backward()
            results.append((outputs[2] is None, [*flat, *(p.grad for p in module.parameters())]))
        assert results[0][0] == results[1][0]
        # If several regions read a value, its gradients are added in another order than in eager.
        for ours, theirs in zip(results[1][1], results[0][1], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_several_methods_can_be_lowered() -> None:
    net = TwoMethods()
    lowered = aten_recompute.lower(scripted_copy(net), "all", methods=["forward", "encode"])
    x = torch.rand(2, 5)
    assert torch.equal(lowered(x), net(x))
    assert torch.equal(lowered.encode(x), net.encode(x))
    with pytest.raises(ValueError, match='no method "decode"'):
        aten_recompute.lower(scripted_copy(net), "all", methods=["decode"])


def test_an_optional_input_may_be_none_or_a_tensor() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            h = self.linear(x)
            if mask is not None:
                h = h.masked_fill(mask, 0.0)
            return torch.tanh(h)

    net = Masked()
    lowered = lowered_copy(net, "none")
    x, mask = torch.rand(2, 4), torch.rand(2, 4) > 0.5
    for inputs in ((x,), (x, mask), (x, None)):
        expected = step(net, list(net.parameters()), inputs)
        assert_same(step(lowered, list(lowered.parameters()), inputs)[1], expected[1])
    assert num_regions(lowered) == [1, 1]


def test_control_flow_may_depend_on_data() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.tanh(self.a(x))
            if bool(h.sum() > 0):
                h = self.b(h).relu()
            else:
                h = h * 2
            for _ in range(int(x.size(0))):
                h = torch.tanh(self.a(h))
            return h.sum()

    net = Branches()
    lowered = lowered_copy(net, "segments")
    for sign in (1.0, -1.0):
        x = sign * torch.rand(3, 4)
        expected = step(net, list(net.parameters()), (x,))
        result = step(lowered, list(lowered.parameters()), (x,))
        assert_same(result[0] + result[1], expected[0] + expected[1])


def test_fullgraph_makes_a_second_region_an_error() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.tanh(self.a(x))
            print("between")
            return torch.tanh(self.a(h))

    x = torch.rand(2, 4)
    with pytest.raises(RuntimeError, match=r"fullgraph: forward has 2 regions.*prim::Print"):
        lowered_copy(Broken(), "none", fullgraph=True)(x)
    net = Broken()
    lowered = lowered_copy(net, "none")
    lowered(x).sum().backward()
    net(x).sum().backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in net.parameters()])
    assert num_regions(lowered) == [2]


# ---- saving ----


@pytest.mark.parametrize(("net", "x"), [(ConvNet(), torch.rand(4, 3, 8, 8)), (Residual(), torch.rand(2, 16))])
def test_a_saved_module_is_loaded_and_trained(net: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    lowered = lowered_copy(net, "segments")
    lowered.save(str(tmp_path / "net.pt"))
    loaded = torch.jit.load(str(tmp_path / "net.pt"))
    assert list(loaded.state_dict()) == list(lowered.state_dict())
    expected = step(net, list(net.parameters()), (x,))
    result = step(loaded, list(loaded.parameters()), (x,))
    assert_same(result[1], expected[1])
    assert_same(list(loaded.buffers()), list(net.buffers()))
    loaded.eval(), net.eval()
    assert torch.equal(loaded(x), net(x))
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.zero_()
    assert loaded(x).abs().sum() == 0
    # It can be saved again after training has changed it.
    loaded.save(str(tmp_path / "again.pt"))
    assert torch.jit.load(str(tmp_path / "again.pt"))(x).abs().sum() == 0


@pytest.mark.lowered_only
def test_a_newer_file_format_is_refused(tmp_path: Path) -> None:
    lowered_copy(Residual()).save(str(tmp_path / "net.pt"))
    with zipfile.ZipFile(tmp_path / "net.pt") as old, zipfile.ZipFile(tmp_path / "new.pt", "w") as new:
        found = 0
        for item in old.infolist():
            content = old.read(item)
            found += content.count(b"aten_recompute/1")
            new.writestr(item.filename, content.replace(b"aten_recompute/1", b"aten_recompute/9"))
    assert found == 1
    with pytest.raises(RuntimeError, match=r"newer aten_recompute \(format 9, .* update"):
        torch.jit.load(str(tmp_path / "new.pt"))


# ---- PyTorch's own function ----


@pytest.mark.parametrize("spec", ["", '{"strategy": "segments"}', {"strategy": "layers", "stride": "2"}, {"4": 0.5}])
def test_pytorchs_own_function_lowers_a_module(spec: object) -> None:
    net = Residual()
    scripted = scripted_copy(net)
    lowered = to_backend(scripted, spec)
    x = torch.rand(3, 16)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(scripted.parameters()), (x,))[1], expected[1])
    assert num_regions(lowered) == [1]


def test_pytorchs_own_function_shares_buffers() -> None:
    net = ConvNet()
    scripted = scripted_copy(net)
    lowered = to_backend(scripted, "")
    x = torch.rand(4, 3, 8, 8)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(scripted.parameters()), (x,))[1], expected[1])
    assert_same(list(scripted.buffers()), list(net.buffers()))


def test_a_submodule_can_be_lowered_by_pytorchs_own_function() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Residual()
            self.head = nn.Linear(16, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))

    net = Outer()
    scripted = scripted_copy(net)
    lowered = torch._C._jit_to_backend_selective(  # type: ignore[attr-defined]
        scripted, lambda module: to_backend(module, '{"strategy": "segments"}'), ["body"]
    )
    x = torch.rand(3, 16)
    assert torch.equal(lowered(x), net(x))


# ---- options ----


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("layer", {}, "layer"),
        ("layers", {"strid": 2}, "strid"),
        ("layers", {"stride": 0}, "stride"),
        ("layers", {"ratio": 1.5}, "ratio"),
        ("segments", {"count": "many"}, "count"),
        ({"3": [0]}, {}, '"3"'),
        ("names", {}, "keywords"),
        ('{"strategy": ', {}, "JSON"),
    ],
)
def test_an_invalid_spec_raises_one_line(strategy: Any, options: dict[str, Any], message: str) -> None:
    scripted = scripted_copy(Residual())
    with pytest.raises(ValueError, match=message) as error:
        aten_recompute.lower(scripted, strategy, **options)
    assert "\n" not in str(error.value)


def test_an_invalid_spec_raises_in_pytorchs_own_function() -> None:
    with pytest.raises(Exception, match="strateg") as error:
        to_backend(scripted_copy(Residual()), '{"strategy": "segment"}')
    assert "segments" in str(error.value)


def test_the_environment_decides_if_there_is_no_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE", '{"1": null}')
    lowered = lowered_copy(Residual())
    assert aten_recompute.report(lowered)["methods"][0]["options"]["strategy"] == "all"
    named = lowered_copy(Residual(), "segments")
    assert aten_recompute.report(named)["methods"][0]["options"]["strategy"] == "segments"


def test_an_invalid_environment_warns_and_recomputes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECOMPUTE", '{"7": null}')
    net = Residual()
    lowered = lowered_copy(net)
    x = torch.rand(2, 16)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])
    assert aten_recompute.report(lowered)["methods"][0]["options"]["strategy"] == "none"
    warning = capfd.readouterr().err
    assert "RECOMPUTE" in warning
    assert '"7"' in warning


def test_modules_that_are_not_scripted_or_not_lowered_are_refused() -> None:
    with pytest.raises(TypeError, match=r"torch\.jit\.script"):
        aten_recompute.lower(Residual())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(scripted_copy(Residual()))


def accepted_options(**given: Any) -> set[str]:
    """Returns the options that the library names when it refuses one."""
    with pytest.raises(ValueError, match="accepted are") as error:
        lowered_copy(Residual(), {**given, "no_such_option": 1})
    return set(re.findall(r'"(\w+)"', str(error.value).split("accepted are")[1]))


@pytest.mark.parametrize(
    ("strategy", "required"),
    [
        ("none", {}),
        ("all", {}),
        ("names", {"keywords": ["relu"]}),
        ("layers", {"start": 0}),
        ("ops", {"ops": ["relu"]}),
        ("segments", {}),
        ("min_cut", {}),
        ("budget", {"memory_budget": 0.5}),
    ],
)
@pytest.mark.lowered_only
def test_every_option_is_documented_and_typed(strategy: str, required: dict[str, Any]) -> None:
    options = accepted_options(strategy=strategy, **required)
    everything = accepted_options()
    assert options < everything
    assert {"fullgraph", "profile", "accumulate", "release_outputs"} <= options
    assert set(required) <= options
    folder = Path(__file__).parents[3] / "docs"
    documentation = (folder / "options.md").read_text() + (folder / "min_cut.md").read_text()
    help_text = aten_recompute.lower.__doc__ or ""
    assert [each for each in options - {"strategy"} if f"``{each}``" not in help_text] == []
    assert f'``"{strategy}"``' in help_text
    short_forms = {option for option in everything if option.isdigit()}
    assert [each for each in short_forms if f'`{{"{each}": ' not in documentation] == []
    assert not options & short_forms
    assert [each for each in options - {"strategy"} if f"`{each}`" not in documentation] == []
    assert options - {"strategy"} <= set(aten_recompute.LowerOptions.__annotations__)
    assert f'`{{"strategy": "{strategy}"' in documentation


def test_every_key_of_the_report_is_typed() -> None:
    lowered = lowered_copy(Residual(), "budget", memory_budget=0.9, cost_model="flops")
    for _ in range(2):
        lowered(torch.rand(64, 16)).sum().backward()
    (method,) = aten_recompute.report(lowered)["methods"]
    assert set(method) | {"leaner_budget_bytes"} == set(get_type_hints(_report_types.MethodReport))
    (specialization,) = method["specialisations"]
    assert set(specialization) == set(get_type_hints(_report_types.Specialization))
    (variant,) = specialization["regions"][0]["variants"]
    assert set(variant) | {"measured_peak_bytes"} == set(get_type_hints(_report_types.Variant))
    assert set(variant["arena"]) == set(get_type_hints(_report_types.ArenaFigures))


# ---- layers ----


def recomputed_names(lowered: torch.jit.ScriptModule) -> list[str]:
    report = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]
    return report["regions"][0]["variants"][0]["recomputed"]


def test_strategy_layers_recomputes_the_chosen_layers_only() -> None:
    net = Residual()
    x = torch.rand(2, 16)
    counts = []
    for start, stride in ((0, 1), (0, 2), (3, 4), (9, 1)):
        lowered = lowered_copy(net, "layers", start=start, stride=stride)
        lowered(x).sum().backward()
        counts.append(sum("gelu" in name for name in recomputed_names(lowered)))
    assert counts == [4, 2, 1, 0]


def test_inject_layer_tags_defines_the_layers() -> None:
    x = torch.rand(2, 16)
    for before in (True, False):
        net = Residual()
        if before:
            aten_recompute.inject_layer_tags(net, r"blocks\.[13]")
        scripted = torch.jit.script(net)
        if not before:
            aten_recompute.inject_layer_tags(scripted, r"blocks\.[13]")
        lowered = aten_recompute.lower(scripted, "layers", start=1)
        lowered(x).sum().backward()
        assert sum("gelu" in name for name in recomputed_names(lowered)) == 1
    with pytest.raises(ValueError, match="matches no submodule"):
        aten_recompute.inject_layer_tags(Residual(), "layers")


def test_mark_layer_defines_the_layers() -> None:
    class Marked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.ops.aten_recompute.mark_layer(x, 0)
            h = torch.nn.functional.gelu(self.a(x))
            h = torch.ops.aten_recompute.mark_layer(h, 1)
            return torch.nn.functional.gelu(self.b(h))

    net = Marked()
    x = torch.rand(2, 4)
    expected = step(net, list(net.parameters()), (x,))
    for start, gelus in ((0, 2), (1, 1), (2, 0)):
        lowered = lowered_copy(net, "layers", start=start)
        assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])
        assert sum("linear" in name for name in recomputed_names(lowered)) == gelus


def test_a_report_consists_of_plain_data() -> None:
    lowered = lowered_copy(Residual(), "segments")
    lowered(torch.rand(2, 16)).sum().backward()
    report = aten_recompute.report(lowered)
    assert json.loads(json.dumps(report)) == report
    variant = report["methods"][0]["specialisations"][0]["regions"][0]["variants"][0]
    assert variant["recomputed"]
    assert variant["saved"]
    assert variant["stages"] > 1
