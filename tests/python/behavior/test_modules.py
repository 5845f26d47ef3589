"""torch.jit does with lowered modules what it does with scripted ones: freezing, scripting, saving, containers."""

import copy
import enum
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, saved_and_loaded, scripted_copy, step, to_backend
from support.nets import ConvNet, Residual, TwoMethods


class Outer(nn.Module):
    """Calls ``inner``, which may be lowered, and then a layer of its own."""

    def __init__(self, inner: nn.Module, width: int = 16) -> None:
        super().__init__()
        self.inner = inner
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x))


class Twice(nn.Module):
    def __init__(self, a: nn.Module, b: nn.Module) -> None:
        super().__init__()
        self.a = a
        self.b = b

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x).tanh()


def half_lowered(net: Any, strategy: str = "none") -> torch.jit.ScriptModule:
    """Returns a scripted Outer with copies of the parameters, whose ``inner`` is lowered."""
    net = copy.deepcopy(net)
    net.inner = aten_recompute.lower(torch.jit.script(net.inner), strategy)
    return torch.jit.script(net)


# ---- freezing, unlower ----


@pytest.mark.parametrize("again", [False, True], ids=["made", "loaded"])
@pytest.mark.parametrize("to_frozen", [torch.jit.freeze, torch.jit.optimize_for_inference])
def test_freezing_equals_eager_and_does_not_change_the_module(to_frozen: Any, again: bool) -> None:
    net = ConvNet()
    lowered = lowered_copy(net, "all")
    x = torch.rand(4, 3, 8, 8)
    step(net, list(net.parameters()), (x,)), step(lowered, list(lowered.parameters()), (x,))
    if again:
        lowered = saved_and_loaded(lowered)
    net.eval(), lowered.eval()
    names = list(lowered.state_dict())
    frozen = to_frozen(lowered)
    torch.testing.assert_close(frozen(x), net(x))
    assert not list(frozen.parameters())
    assert "aten_recompute" not in frozen.graph.str(print_source_ranges=False)
    # The lowered module itself is not changed.
    assert list(lowered.state_dict()) == names
    assert torch.equal(lowered(x), net(x))
    lowered.train(), net.train()
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])


def test_a_parent_of_lowered_modules_can_be_frozen() -> None:
    net: Any = Outer(Twice(Residual(), nn.Sequential(Residual(), nn.Linear(16, 16)))).eval()
    x = torch.rand(3, 16)
    half = copy.deepcopy(net)
    half.inner.a = aten_recompute.lower(torch.jit.script(half.inner.a), "all")
    half.inner.b[0] = aten_recompute.lower(torch.jit.script(half.inner.b[0]), "segments")
    half = torch.jit.script(half)
    frozen = torch.jit.freeze(half)
    torch.testing.assert_close(frozen(x), net(x))
    assert not list(frozen.parameters())
    assert "aten_recompute" not in frozen.graph.str(print_source_ranges=False)
    assert torch.equal(half(x), net(x))
    assert torch.equal(saved_and_loaded(frozen)(x), frozen(x))


def test_freezing_preserves_attributes() -> None:
    net = TwoMethods().eval()
    lowered = lowered_copy(net, "all").eval()
    x = torch.rand(2, 5)
    frozen = torch.jit.freeze(lowered, preserved_attrs=["encode"])
    torch.testing.assert_close(frozen.encode(x), net.encode(x))
    torch.testing.assert_close(frozen(x), net(x))


@pytest.mark.lowered_only
def test_unlower_returns_the_module_with_its_present_tensors() -> None:
    net = ConvNet()
    lowered: Any = lowered_copy(net, "segments")
    with torch.no_grad():
        for module in (net, lowered):
            for parameter in module.parameters():
                parameter.mul_(0.5)
    weight: Any = nn.Parameter(torch.rand_like(net.head.weight))
    lowered.head.weight, net.head.weight = weight, weight
    plain = aten_recompute.unlower(lowered)
    assert list(plain.state_dict()) == list(lowered.state_dict())
    for (name, ours), theirs in zip(plain.named_parameters(), lowered.parameters(), strict=True):
        assert ours is theirs, name
    for (name, buffer), theirs in zip(plain.named_buffers(), lowered.buffers(), strict=True):
        assert buffer is theirs, name
    x = torch.rand(4, 3, 8, 8)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(plain, list(plain.parameters()), (x,))[1], expected[1])
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(plain)
    assert "aten_recompute" not in plain.code
    assert aten_recompute.unlower(plain) is plain


def test_unlower_accepts_modules_lowered_by_pytorchs_own_function() -> None:
    net = ConvNet()
    scripted = scripted_copy(net)
    plain = aten_recompute.unlower(to_backend(scripted, ""))
    for (name, ours), (_, theirs) in zip(
        [*plain.named_parameters(), *plain.named_buffers()],
        [*scripted.named_parameters(), *scripted.named_buffers()],
        strict=True,
    ):
        assert ours is theirs, name
    x = torch.rand(4, 3, 8, 8)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(plain, list(scripted.parameters()), (x,))[1], expected[1])


# ---- lowering again ----


@pytest.mark.parametrize("again", [False, True], ids=["made", "loaded"])
def test_a_lowered_module_can_be_lowered_again(again: bool) -> None:
    net = ConvNet()
    first = lowered_copy(net, "none")
    if again:
        first = saved_and_loaded(first)
    lowered = aten_recompute.lower(first, "all")
    assert aten_recompute.report(lowered)["methods"][0]["options"]["strategy"] == "all"
    assert all(ours is theirs for ours, theirs in zip(lowered.parameters(), first.parameters(), strict=True))
    x = torch.rand(4, 3, 8, 8)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])
    assert_same(list(lowered.buffers()), list(net.buffers()))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.lowered_only
def test_the_parent_of_a_lowered_module_can_be_lowered(depth: int, tmp_path: Path) -> None:
    net: nn.Module = Outer(Residual())
    half = half_lowered(net)
    if depth == 2:
        net, half = nn.Sequential(net, nn.Tanh()), torch.jit.script(nn.Sequential(half, nn.Tanh()))
    lowered = aten_recompute.lower(half, "all")
    x = torch.rand(3, 16)
    for module in (lowered, saved_and_loaded(lowered)):
        expected = step(net, list(net.parameters()), (x,))
        assert_same(step(module, list(module.parameters()), (x,))[1], expected[1])
        (specialization,) = aten_recompute.report(module)["methods"][0]["specialisations"]
        (region,) = specialization["regions"]  # the child is planned with its parent
        assert region["variants"][0]["recomputed"]
    assert list(lowered.state_dict()) == list(net.state_dict())


def test_pytorchs_own_function_lowers_the_parent_of_a_lowered_module() -> None:
    net = Outer(Residual())
    half = half_lowered(net)
    lowered = to_backend(half, '{"strategy": "all"}')
    x = torch.rand(3, 16)
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(half.parameters()), (x,))[1], expected[1])
    assert len(aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]) == 1


# ---- methods ----


class Methods(nn.Module):
    """Has methods that call one another and read ``scale`` and ``offset``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.offset = nn.Parameter(torch.rand(4))
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.encode(x, 2)) * self.scale

    @torch.jit.export
    def encode(self, x: Tensor, times: int) -> Tensor:
        for _ in range(times):
            x = torch.relu(self.layer(x)) + self.offset
        return x

    @torch.jit.export
    def twice(self, x: Tensor) -> Tensor:
        return self.forward(self.forward(x)) + self.encode(x, 1)

    @torch.jit.export
    def set_scale(self, scale: float) -> None:
        self.scale = scale


@pytest.mark.parametrize("again", [False, True], ids=["made", "loaded"])
@pytest.mark.lowered_only
def test_methods_that_are_not_lowered_remain(again: bool) -> None:
    net = Methods()
    lowered = lowered_copy(net, "all")
    if again:
        lowered = saved_and_loaded(lowered)
    x = torch.rand(3, 4)
    for scale in (2.0, 0.5):
        for module in (net, lowered):
            module.set_scale(scale)
            module.offset = nn.Parameter(torch.full((4,), scale))
        assert lowered.scale == scale
        assert torch.equal(lowered.encode(x, times=3), net.encode(x, times=3))
        for name in ("twice", "forward"):
            expected = step(getattr(net, name), list(net.parameters()), (x,))
            result = step(getattr(lowered, name), list(lowered.parameters()), (x,))
            assert_same(result[0], expected[0])
            for ours, theirs in zip(result[1], expected[1], strict=True):
                torch.testing.assert_close(ours, theirs)
    # The lowered method is planned even if another method calls it; the other methods are not planned.
    (method,) = aten_recompute.report(lowered)["methods"]
    assert method["method"] == "forward"
    assert method["specialisations"]


def test_a_single_method_can_be_given_by_its_name() -> None:
    net = TwoMethods()
    lowered = lowered_copy(net, "all", methods="encode")
    x = torch.rand(2, 5)
    assert torch.equal(lowered.encode(x), net.encode(x))
    assert torch.equal(lowered(x), net(x))
    assert [method["method"] for method in aten_recompute.report(lowered)["methods"]] == ["encode"]
    with pytest.raises(ValueError, match='no method "decode"'):
        lowered_copy(net, "all", methods="decode")


# ---- scripted hooks ----


class Hooked(nn.Module):
    """Has hooks that are scripted with the module, on itself and on a child that it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.inner = nn.Linear(3, 3)
        self.inner.register_forward_hook(_add_bias)
        self.register_forward_pre_hook(_twice)
        self.register_forward_hook(_through_layer)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x))


def _add_bias(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return output + module.bias


def _twice(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0] * 2,)


def _through_layer(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return module.layer(output)


def test_scripted_hooks_run_once() -> None:
    net = Hooked()
    lowered = lowered_copy(net, "all")
    x = torch.rand(2, 3)
    expected = step(net, list(net.parameters()), (x,))
    for module in (
        lowered,
        saved_and_loaded(lowered),
        aten_recompute.lower(lowered, "none"),
        aten_recompute.unlower(lowered),
        torch.jit.script(nn.Sequential(lowered)),
    ):
        result = step(module, list(module.parameters()), (x,))
        assert_same(result[0] + result[1], expected[0] + expected[1])
    assert torch.equal(lowered.inner(x), net.inner(x))


# ---- types of arguments ----


class Pair(NamedTuple):
    first: Tensor
    second: Tensor | None = None


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(
        self, one: Pair, other: Pair | None, many: list[Pair], named: dict[str, Pair]
    ) -> tuple[Pair, Pair | None, list[Pair], dict[str, Pair]]:
        x = self.layer(one.first)
        second = one.second
        if second is not None:
            x = x + second
        if other is not None:
            x = x * other.first
        for each in many:
            x = x + each.first
        for name in named:
            x = torch.tanh(x * named[name].first)
        return Pair(x, x * 2), other, [Pair(x + 1)], {"sum": Pair(x.sum())}


class OnePair(nn.Module):
    def forward(self, pair: Pair) -> Pair:
        return Pair(pair.first.tanh(), pair.second)


@pytest.mark.parametrize("again", [False, True], ids=["made", "loaded"])
def test_methods_take_and_return_named_tuples(again: bool) -> None:
    net = Pairs()
    lowered = lowered_copy(net, "all")
    if again:
        lowered = saved_and_loaded(lowered)
    a, b = torch.rand(2, 3), torch.rand(2, 3)
    examples: list[tuple[Any, ...]] = [
        (Pair(a, b), Pair(b), [Pair(a), Pair(b)], {"x": Pair(a)}),
        (Pair(a), None, [], {}),
    ]
    for inputs in examples:
        expected = step(net, list(net.parameters()), inputs)
        result = step(lowered, list(lowered.parameters()), inputs)
        assert_same(result[0] + result[1], expected[0] + expected[1])
        one, other, many, named = lowered(*inputs)
        assert (one._fields, type(one).__name__) == (("first", "second"), "Pair")
        assert (other is None) == (inputs[1] is None)
        assert many[0].second is None
        assert list(named) == ["sum"]


def test_a_returned_named_tuple_has_gradients() -> None:
    lowered = lowered_copy(OnePair(), "none")
    x = torch.rand(3, requires_grad=True)
    for module in (lowered, saved_and_loaded(lowered)):
        first, second = module(Pair(x))
        assert second is None
        assert torch.equal(first, x.tanh())
        (gradient,) = torch.autograd.grad(first.sum(), [x])
        torch.testing.assert_close(gradient, 1 - x.tanh() ** 2)


class Activation(enum.Enum):
    TANH = 1
    RELU = 2


class ByEnum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, activation: Activation) -> tuple[Tensor, Activation]:
        x = self.layer(x)
        if activation == Activation.TANH:
            x = torch.tanh(x)
        else:
            x = torch.relu(x)
        return x, activation


def test_methods_take_and_return_enums() -> None:
    net = ByEnum()
    lowered = lowered_copy(net, "all")
    loaded = saved_and_loaded(lowered)
    x = torch.rand(2, 3)
    for activation in Activation:
        assert lowered(x, activation)[1] is activation
        expected = step(net, list(net.parameters()), (x, activation))
        for module in (lowered, loaded):
            assert_same(step(module, list(module.parameters()), (x, activation))[1], expected[1])


@torch.jit.script
class Scaled:
    def __init__(self, x: Tensor, by: int) -> None:
        self.x = x
        self.by = by

    def value(self) -> Tensor:
        return self.x * self.by


class OnObjects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, scaled: Scaled) -> Scaled:
        return Scaled(torch.tanh(self.layer(scaled.value())), 3)


def test_methods_take_and_return_objects_of_scripted_classes() -> None:
    net = OnObjects()
    lowered = lowered_copy(net, "all")
    x = torch.rand(2, 3)
    expected = step(lambda: torch.tanh(net.layer(x * 2)) * 3, list(net.parameters()), ())
    for module in (lowered, saved_and_loaded(lowered)):
        result = step(lambda module=module: module(Scaled(x, 2)).value(), list(module.parameters()), ())
        assert_same(result[0] + result[1], expected[0] + expected[1])


# ---- containers ----


@torch.jit.interface
class Head(nn.Module):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[empty-body]
        pass


class TanhHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(13, 13)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)).sigmoid()


class CallsAnInterface(nn.Module):
    head: Head

    def __init__(self) -> None:
        super().__init__()
        self.head = TanhHead()  # type: ignore[assignment]
        self.layer = nn.Linear(13, 13)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.head.forward(x))


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
@pytest.mark.parametrize("warmed_up", [False, True])
def test_calls_of_interfaces_have_eagers_gradients(strategy: str, warmed_up: bool) -> None:
    """TorchScript differentiates tanh otherwise than eager once a method has been called twice."""
    torch.manual_seed(0)
    eager, x = CallsAnInterface(), torch.randn(5, 13)
    expected = step(eager, list(eager.parameters()), (x,))
    scripted = scripted_copy(eager)
    for _ in range(3 if warmed_up else 0):
        step(scripted, list(scripted.parameters()), (x,))
    lowered = aten_recompute.lower(scripted, strategy)
    for _ in range(4):
        outputs, gradients = step(lowered, list(lowered.parameters()), (x,))
        assert_same(outputs, expected[0])
        assert_same(gradients, expected[1])


class Stacks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Residual() for _ in range(3)])
        self.tail = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
        self.heads = nn.ModuleDict({"a": nn.Linear(16, 2), "b": nn.Linear(16, 3)})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            x = block(x)
        x = self.tail(x)
        return self.heads["a"](x), self.heads["b"](x)


def assert_containers_work(lowered: Any, net: Stacks) -> None:
    x = torch.rand(2, 16)
    assert len(lowered.blocks) == 3
    assert len(lowered.tail) == 2
    assert len(lowered.heads) == 2
    assert torch.equal(lowered.blocks[0](x), net.blocks[0](x))
    assert torch.equal(lowered.blocks[-1](x), net.blocks[-1](x))
    h = x
    for block in lowered.blocks:
        h = block(h)
    assert torch.equal(lowered.tail(h), net.tail(net.blocks[2](net.blocks[1](net.blocks[0](x)))))
    assert [len(part) for part in (lowered.blocks[1:], lowered.tail[:1])] == [2, 1]
    assert torch.equal(lowered.tail[:1](x), net.tail[0](x))
    with pytest.raises(IndexError):
        lowered.blocks[3]
    assert "a" in lowered.heads
    assert "c" not in lowered.heads
    assert list(lowered.heads) == list(lowered.heads.keys()) == ["a", "b"]
    assert [name for name, _ in lowered.heads.items()] == ["a", "b"]
    assert lowered.heads["b"].weight is list(lowered.heads.values())[1].weight
    assert [child.weight.size(0) for _, child in lowered.heads.items()] == [2, 3]


def test_containers_of_a_lowered_module_can_be_indexed() -> None:
    net = Stacks()
    lowered = lowered_copy(net, "all")
    assert_containers_work(lowered, net)
    assert lowered.tail[0].weight is dict(lowered.named_parameters())["tail.0.weight"]


def test_containers_of_a_loaded_module_can_be_indexed(tmp_path: Path) -> None:
    net = Stacks()
    lowered_copy(net, "all").save(str(tmp_path / "stacks.pt"))
    assert_containers_work(aten_recompute.load(tmp_path / "stacks.pt"), net)


def test_a_container_can_be_lowered_itself() -> None:
    net = nn.Sequential(Residual(), nn.Linear(16, 4))
    lowered: Any = lowered_copy(net, "all")
    assert len(lowered) == 2
    assert [name for name, _ in lowered.named_children()] == ["0", "1"]
    assert lowered[1].weight.shape == (4, 16)
    x = torch.rand(2, 16)
    assert torch.equal(lowered[1](lowered[0](x)), net(x))


def test_a_lowered_module_has_the_children_of_the_original() -> None:
    net = ConvNet()
    assert [name for name, _ in lowered_copy(net).named_modules()] == [name for name, _ in net.named_modules()]


# ---- files ----


@pytest.mark.lowered_only
def test_a_file_names_the_library_that_it_needs(tmp_path: Path) -> None:
    """The process that loads it here has not loaded the library."""
    path = tmp_path / "net.pt"
    half_lowered(Outer(Residual())).save(str(path))
    script = f"import torch\ntry:\n    torch.jit.load({str(path)!r})\nexcept RuntimeError as error:\n    print(error)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("Unknown type name")]
    for words in ("lowered_module_needs", "import_aten_recompute", "or__dlopen_libaten_recompute_so"):
        assert words in line


@pytest.mark.parametrize("route", ["lower", "to_backend"])
@pytest.mark.lowered_only
def test_a_file_contains_its_plan(route: str, tmp_path: Path) -> None:
    net = Residual()
    x = torch.rand(3, 16, requires_grad=True)
    planned = lowered_copy(net, "all", profile=True)
    planned(x).sum().backward()
    plan = tmp_path / "plan.json"
    aten_recompute.save_plan(planned, plan)
    if route == "lower":
        lowered = lowered_copy(net, plan=str(plan))
    else:
        lowered = to_backend(scripted_copy(net), f'{{"plan": "{plan}"}}')
    lowered.save(str(tmp_path / "net.pt"))
    plan.unlink()
    loaded = torch.jit.load(str(tmp_path / "net.pt"))
    (ours,) = torch.autograd.grad(loaded(x).sum(), [x])
    (theirs,) = torch.autograd.grad(net(x).sum(), [x])
    assert torch.equal(ours, theirs)
    assert aten_recompute.report(loaded)["methods"][0]["options"]["plan"]["regions"]


def test_the_package_has_the_version_of_the_build() -> None:
    build = (Path(__file__).parents[3] / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"VERSION {aten_recompute.__version__} " in build
