"""Draws networks of norms and what their caller does.

Which results are read, in which modes a network runs before one backward, and what the caller changes between forward
and backward. Inputs may have NaN and infinity in them. ``layouts()`` draws networks of convolutions that put the
channels of their images last themselves; they run with ``exact=False`` and channels last.
"""

import copy
import linecache
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

import aten_recompute

STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "none"},
    {"strategy": "none", "fuse": False},
    {"strategy": "all"},
    {"strategy": "segments"},
    {"strategy": "min_cut"},
    {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest", "cost_model": "flops"},
    {"strategy": "budget", "memory_budget": 0.01, "unreachable": "leanest", "cost_model": "flops"},
]

INEXACT: list[dict[str, Any]] = [
    {"strategy": "none", "exact": False},
    {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest", "exact": False},
]

LAYERS = {
    "c": "nn.Conv2d(3, 3, 3, padding=1)",
    "n": "nn.BatchNorm2d(3, momentum=0.5)",
    "m": "nn.BatchNorm2d(3, affine=False, momentum=0.3)",
    "b": "nn.BatchNorm2d(3, track_running_stats=False)",
    "i": "nn.InstanceNorm2d(3, affine=True, track_running_stats=True)",
    "g": "nn.GroupNorm(3, 3)",
}
ACTIVATIONS = [
    "torch.relu({x})", "F.relu6({x})", "F.hardtanh({x}, -0.5, 0.75)", "F.relu({x}, inplace=True)", "F.gelu({x})",
    "torch.tanh({x})", "{x} * 2",
]  # fmt: skip
# What puts the channels of an image last, or first, by operators that are not asked for a layout.
LAYOUTS = [
    "{x}.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)", "{x}.contiguous(memory_format=torch.channels_last)",
    "{x}.transpose(1, 3).clone(memory_format=torch.contiguous_format).transpose(1, 3)", "{x}.contiguous()",
    "torch.stack(torch.unbind({x}, 1), -1).permute(0, 3, 1, 2)",
    "{x}.flatten(2).transpose(1, 2).contiguous().transpose(1, 2).unflatten(2, [{x}.size(2), {x}.size(3)])",
]  # fmt: skip
CHANGES = ["", "", "", "bias", "bias.data", "running_mean", "running_mean.data", "running_var.data"]

_files = count()


@dataclass
class Call:
    training: bool
    early: bool
    no_grad: bool
    value: float  # one element of the input


@dataclass
class Network:
    source: str
    calls: list[Call]
    change: str  # made to the first norm between the forwards and the backward
    single: bool
    size: tuple[int, ...]
    exact: bool = True


@st.composite
def networks(draw: Callable[..., Any], exact: bool = True) -> Network:
    """Draws a network of up to eight statements, which is called up to three times before one backward."""
    kinds = ["layer", "layer", "layer", "shared", "dropout", "sum"]
    if not exact:
        kinds = ["layer", "convolution", "convolution", "convolution", "layout", "layout", "dropout", "sum"]

    def pick(options: Any) -> Any:
        return draw(st.sampled_from(options))

    layers = ["        self.n0 = nn.BatchNorm2d(3, momentum=0.5)"]
    body: list[str] = []
    names = ["x"]

    def statement(indent: str) -> None:
        name = f"v{len(body)}"
        x = pick(names)
        kind = pick(kinds)
        if kind in ("layer", "convolution"):
            layer = f"{pick(sorted(LAYERS)) if kind == 'layer' else 'c'}{len(body) + 1}"
            layers.append(f"        self.{layer} = {LAYERS[layer[0]]}")
            made = f"self.{layer}({x})"
        elif kind == "shared":
            made = f"self.n0({x})"
        elif kind == "dropout":
            made = f"F.dropout({x} * 1.5, 0.3, self.training)"
        elif kind == "layout":
            made = pick(LAYOUTS).format(x=x)
        else:
            made = f"{x} + {pick(names)}.mean()"
        if kind in ("layer", "convolution", "shared") and draw(st.booleans()):
            made = pick(ACTIVATIONS).format(x=made)
        body.append(f"{indent}{name} = {made}")
        if indent == " " * 8:
            names.append(name)

    for _ in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 4)) == 4:
            result = names[-1]
            body.append(f"        w{len(body)} = {result}")
            chosen = body[-1].split()[0]
            body.append("        if early:")
            statement(" " * 12)
            body.append(f"            {chosen} = {body[-1].split()[0]}")
            names.append(chosen)
        else:
            statement(" " * 8)
    results = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
    source = "\n".join(
        ["class Drawn(nn.Module):", "    def __init__(self) -> None:", "        super().__init__()"]
        + layers
        + ["    def forward(self, x: Tensor, early: bool) -> Tensor:"]
        + body
        + [f"        return {' + '.join(results)} * 1.25", ""]
    )
    # Where an activation meets a NaN, eager's gradient depends on the place of the element in memory.
    values = [0.5] * 6 + ([float("nan"), float("inf")] if exact else [])
    calls = [
        Call(draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 4)) == 4, pick(values))
        for _ in range(draw(st.integers(1, 3)))
    ]
    size = pick([(2, 3, 4, 4), (3, 3, 5, 3), (2, 3, 8, 9)])
    # In float64, rounding is far below any other difference.
    return Network(source, calls, pick(CHANGES), exact and draw(st.booleans()), size, exact)


def layouts() -> st.SearchStrategy[Network]:
    """Draws networks of convolutions that change the layouts of their images."""
    return networks(exact=False)


def module_of(network: Network) -> nn.Module:
    """Returns a module of the network, whose source TorchScript finds by ``linecache``."""
    file = f"<network {next(_files)}>"
    linecache.cache[file] = (len(network.source), None, network.source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": file, "torch": torch, "F": F, "nn": nn, "Tensor": Tensor}
    exec(compile(network.source, file, "exec"), names)
    torch.manual_seed(0)
    made = names["Drawn"]()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    module: nn.Module = made if network.single else made.double()
    return module


def _apply(change: str, module: Any) -> None:
    if not change:
        return
    tensor = getattr(module.n0, change.split(".")[0])
    with torch.no_grad():
        (tensor.data if change.endswith(".data") else tensor).add_(0.75)


def run(module: nn.Module, network: Network) -> list[Tensor | None] | str:
    """Runs the calls and one backward.

    Returns:
        Results and their strides, gradients, buffers and random state, or the error.
    """
    torch.manual_seed(3)
    seen: list[Tensor | None] = []
    inputs: list[Tensor] = []
    try:
        outputs = []
        for number, call in enumerate(network.calls):
            module.train(call.training)
            x = torch.randn(network.size, dtype=torch.float64) * (1 + number) + number
            x.view(-1)[number * 7] = call.value
            x = (x if not network.single else x.float()).requires_grad_()
            with torch.set_grad_enabled(not call.no_grad):
                output = module(x, call.early)
            inputs.append(x)
            outputs.append(output)
        seen += [output.detach().clone() for output in outputs]
        seen += [torch.tensor(output.stride()) for output in outputs]
        _apply(network.change, module)
        wanted = [output for output in outputs if output.requires_grad]
        if wanted:
            torch.autograd.backward(wanted, [torch.randn_like(output) for output in wanted])
    except (RuntimeError, torch.jit.Error) as error:
        return str(error)
    seen += [x.grad for x in inputs] + [p.grad for p in module.parameters()]
    return seen + [buffer.clone() for buffer in module.buffers()] + [torch.get_rng_state()]


@contextmanager
def _channels_last() -> Iterator[None]:
    """Puts channels last wherever a network may have them there, whether that is faster or not."""
    os.environ["RECOMPUTE_CHANNELS_LAST"] = "always"
    try:
        yield
    finally:
        del os.environ["RECOMPUTE_CHANNELS_LAST"]


def _largest(tensors: list[Tensor | None]) -> float:
    """Returns the largest finite element of all tensors."""
    numbers = [each.double().nan_to_num(0.0, 0.0, 0.0).abs() for each in tensors if each is not None]
    return max(float(each.max()) for each in numbers if each.numel() > 0)


def difference(actual: list[Tensor | None] | str, expected: list[Tensor | None] | str, exact: bool = True) -> str:
    if isinstance(expected, str):
        return ""  # eager keeps running statistics that it does not need, and refuses a change of them
    if isinstance(actual, str):
        return f"raises: {actual}"
    rounding = 0.0 if exact else 1e-12 * _largest(expected)
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if (a is None) != (b is None):
            return f"tensor {index} is {'None' if a is None else 'not None'}"
        if a is None or b is None:
            continue
        if not torch.equal(a.isnan(), b.isnan()):
            return f"tensor {index} has NaN elsewhere"
        # Some gradients are nothing but what rounding leaves of much larger numbers.
        if rounding > 0.0 and a.is_floating_point() and torch.allclose(a, b, 1e-9, rounding, equal_nan=True):
            continue
        if not torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)):
            return f"tensor {index} differs by up to {(a.double() - b.double()).abs().nan_to_num(0.0).max().item():.3g}"
    return ""


def check(network: Network) -> str:
    """Compares the network, scripted and lowered, with eager.

    Returns:
        An empty string if it was compared, and otherwise the reason why it was not.

    Raises:
        AssertionError: there is a difference; the message has it and the network.
    """
    eager = module_of(network)
    expected = run(copy.deepcopy(eager), network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for options in STRATEGIES if network.exact else INEXACT:
            lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), options)
            with nullcontext() if network.exact else _channels_last():
                actual = run(lowered, network)
            # What is computed again reads parameters as they are, and refuses those that were changed.
            again = options["strategy"] != "none" and network.change in ("bias", "bias.data")
            if again and (network.change == "bias.data" or isinstance(actual, str)):
                continue
            what = difference(actual, expected, network.exact)
            assert not what, f"{options}: {what}\n{network}\n{network.source}"
    return "raises in eager" if isinstance(expected, str) else ""
