"""Draws modules with submodules, and the calls of a training in turn.

What ``programs`` does not have: submodules that a key chooses, interfaces, unions, norms and dropouts whose result a
call may not read, statistics that a module keeps, types of fewer bits, values on the bounds of activations, NaN and
infinities; calls in training and evaluation before one backward; and a caller that changes weights and buffers
in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from .autocast import BLOCKS, OFTEN

HEADER = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing import Union, List, Dict, Optional, Any


@torch.jit.interface
class Head(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class One(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer = {layer}
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) * self.factor


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = {layer}, {norm}

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.layer(x)))


class Model(nn.Module):
    one: Head

    def __init__(self) -> None:
        super().__init__()
        self.one = One(1.0)
        self.heads = nn.ModuleDict({{"a": One(1.0), "b": Two(), "c": One(0.5)}})
        self.blocks = nn.ModuleList([Two(), One(2.0)])
        self.first, self.second = {layer}, {layer}
        self.norm, self.other_norm = {norm}, {norm}
        self.cell = nn.GRUCell({size}, {size})
        self.dropout = nn.Dropout(0.3)
        self.register_buffer("mean", torch.zeros(1))
        self.steps = 0

"""

SIGNATURE = (
    "    def forward(self, x: Tensor, key: str, index: int, flag: bool, more: Union[Tensor, List[Tensor]]) -> Tensor:"
)

ACTIVATIONS = [
    "torch.relu({x})", "F.relu6({x})", "F.hardtanh({x}, -0.5, 0.7)", "{x}.clamp(-0.3, 0.3)", "torch.tanh({x})",
    "F.hardsigmoid({x})", "F.hardswish({x})", "F.leaky_relu({x}, 0.1)", "F.elu({x})", "F.threshold({x}, 0.1, -0.2)",
    "F.gelu({x})", "F.softplus({x})", "{x}.clamp(min=0.1)", "F.silu({x})", "torch.sigmoid({x})",
    "F.hardshrink({x}, 0.3)", "F.softshrink({x}, 0.3)", "F.selu({x})", "{x}.abs()", "F.hardtanh({x}, -0.1, 0.1)",
]  # fmt: skip
VALUES = [
    "self.first({x})", "self.second({x})", "{x} * 0.5 + {y}", "{x} * {y}", "self.dropout({x})", "{x} - {y}",
    "self.norm({x})", "self.other_norm({x})", "self.one.forward({x})", "self.heads['a']({x})",
    "torch.maximum({x}, {y})",
]  # fmt: skip
# With fewer rows, ATen's vector code would have nothing to do.
CELL = "self.cell({x}.repeat(4, 1), {y}.repeat(4, 1))[:{x}.size(0)]"
ON_DATA = ["bool({x}.sum() > 0)", "float({x}.mean()) < 0.1", "float({x}.flatten()[1]) > 0", "bool({x}.max() > 1.0)"]
CONDITIONS = [
    "flag", "index > 0", "key == 'a'", "self.training", "{x}.size(0) > 3", "isinstance(more, Tensor)",
    "key in ['b', 'c']", *ON_DATA[:2],
]  # fmt: skip

# What the caller does between two calls, outside of the graph.
EDITS = [
    "m.norm.bias.data.add_(0.5)", "m.norm.weight.data.mul_(-1.5)", "m.norm.running_mean.data.add_(1.0)",
    "m.norm.running_var.data.mul_(3.0)", "m.mean.data.fill_(0.25)", "m.first.weight.data.mul_(0.5)",
    "m.norm.running_mean.copy_(m.other_norm.running_mean)", "m.norm.bias.add_(0.5)", "m.second.weight.add_(0.1)",
    "m.other_norm.running_var.fill_(2.0)", "m.mean.zero_()",
]  # fmt: skip


@dataclass
class Call:
    key: str
    index: int
    flag: bool
    as_list: bool  # the union of the input is a list
    training: bool
    rows: int
    special: str  # values in the input: "", "bounds", "nan", "inf"
    then: str  # "", "backward", or what the caller changes
    # What the caller has around the call, of AROUND in autocast.py; None: the block of the call before goes on.
    around: str | None = ""
    backward_inside: bool = False  # the caller has it around the backward as well


@dataclass
class Model:
    source: str
    dtype: str
    image: bool
    calls: Sequence[Call]


class _Body:
    def __init__(self, draw: Callable[..., Any], image: bool, under_autocast: bool = False) -> None:
        self.draw = draw
        self.under_autocast = under_autocast
        self.values = VALUES if image else [*VALUES, CELL]
        self.lines: list[str] = []
        self.names = ["x"]
        self.counter = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def value(self) -> str:
        """Returns a name; the last ones are the likeliest."""
        return self.pick(self.names[-3:])

    def say(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def new(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def expression(self) -> str:
        return self.pick(self.pick([ACTIVATIONS, self.values, self.values])).format(x=self.value(), y=self.value())

    def assign(self, indent: int) -> None:
        name = self.new()
        self.say(indent, f"{name} = {self.expression()}")
        self.names.append(name)

    def norm_and_activation(self, indent: int) -> None:
        name = self.new()
        norm = self.pick(["self.norm", "self.other_norm"])
        inner = f"{norm}({self.value()})"
        self.say(indent, f"{name} = {self.pick(ACTIVATIONS[:3]).format(x=inner)}")
        self.names.append(name)

    def unread(self, indent: int) -> None:
        self.say(indent, f"unread = {self.pick(['self.norm', 'self.other_norm', 'self.second'])}({self.value()})")

    def choose(self, indent: int) -> None:
        name = self.new()
        where = self.pick(["self.heads[key]", "self.blocks[index]", "self.blocks[int(flag)]"])
        self.say(indent, f"chosen{name}: Head = {where}")
        self.say(indent, f"{name} = chosen{name}.forward({self.value()})")
        self.names.append(name)

    def choose_local(self, indent: int) -> None:
        name = self.new()
        self.say(indent, f"heads{name}: List[Head] = [self.one, self.heads['b'], self.blocks[1]]")
        self.say(indent, f"{name} = heads{name}[index].forward({self.value()})")
        self.names.append(name)

    def refine(self, indent: int) -> None:
        name = self.new()
        x = self.value()
        self.say(indent, "if isinstance(more, Tensor):")
        self.say(indent + 1, f"{name} = {x} + more")
        self.say(indent, "else:")
        self.say(indent + 1, f"{name} = {x} * more[index]")
        self.names.append(name)

    def statistics(self, indent: int) -> None:
        self.say(indent, "if self.training:")
        self.say(indent + 1, f"self.mean.mul_(0.5).add_({self.value()}.detach().mean().to(self.mean.dtype))")
        if self.draw(st.booleans()):
            self.say(indent, "self.steps = self.steps + 1")

    def branch(self, indent: int) -> None:
        name = self.new()
        x = self.value()
        self.say(indent, f"{name} = {x} * 1.0")
        self.say(indent, f"if {self.pick(CONDITIONS).format(x=x)}:")
        known = list(self.names)
        self.names.append(name)
        for _ in range(self.draw(st.integers(0, 2))):
            self.statement(indent + 1, nested=True)
        self.say(indent + 1, f"{name} = {self.expression()}")
        self.names = known + [name]

    def leave(self, indent: int) -> None:
        self.say(indent, f"if {self.pick(CONDITIONS).format(x=self.value())}:")
        self.say(indent + 1, f"return {self.value()} * 2.0")

    def loop(self, indent: int) -> None:
        name = self.new()
        self.say(indent, f"{name} = {self.value()} * 0.5")
        self.say(indent, f"for i{name} in range({self.pick(['2', 'index + 1', 'len(key) + 1'])}):")
        known = list(self.names)
        self.names.append(name)
        for _ in range(self.draw(st.integers(0, 1))):
            self.statement(indent + 1, nested=True)
        self.say(indent + 1, f"{name} = {self.expression()} + {name} * 0.25")
        ending = self.pick(["", "break", "continue", "return"])
        if ending:
            self.say(indent + 1, f"if {self.pick(CONDITIONS).format(x=name)}:")
            self.say(indent + 2, f"return {name}" if ending == "return" else ending)
            self.say(indent + 1, f"{name} = {self.expression()}")
        self.names = known + [name]

    def leave_loop(self, indent: int) -> None:
        """Writes a loop that ends behind two conditions, or goes on with its next iteration behind a third."""
        name = self.new()
        self.say(indent, f"{name} = {self.value()} * 0.5")
        self.say(indent, f"for i{name} in range(3):")
        known = list(self.names)
        self.names.append(name)
        self.say(indent + 1, f"{name} = {self.expression()} + {name} * 0.25")
        self.say(indent + 1, f"if {self.pick(ON_DATA).format(x=name)}:")
        self.say(indent + 2, f"{name} = {self.expression()}")
        self.say(indent + 2, f"if {self.pick([*ON_DATA, *CONDITIONS]).format(x=name)}:")
        self.say(indent + 3, self.pick(["break", "continue", f"return {name}"]))
        self.say(indent + 1, f"elif {self.pick([*ON_DATA, f'i{name} == 1']).format(x=name)}:")
        self.say(indent + 2, self.pick(["break", "continue", f"{name} = {self.expression()}"]))
        self.say(indent + 1, f"{name} = {self.expression()}")
        self.names = known + [name]

    def write_to_copy(self, indent: int) -> None:
        """Writes to a copy that another input would make a view of the caller's tensor: no path is recorded."""
        name = self.new()
        self.say(indent, "if isinstance(more, Tensor):")
        self.say(indent + 1, f"copy{name} = more.transpose(0, 1).contiguous()")
        self.say(indent, "else:")
        self.say(indent + 1, f"copy{name} = more[index].transpose(0, 1).contiguous()")
        self.say(indent, f"copy{name}.mul_(0.5)")
        self.say(indent, f"{name} = {self.value()} + copy{name}.transpose(0, 1)")
        self.names.append(name)

    def skips_of_blocks(self, indent: int) -> None:
        """Writes the way up of a U-Net, which counts down to the list's first element."""
        name = self.new()
        self.say(indent, f"list{name}: List[Tensor] = []")
        self.say(indent, f"{name} = {self.value()}")
        self.say(indent, "for block in self.blocks:")
        self.say(indent + 1, f"{name} = block({name})")
        self.say(indent + 1, f"list{name}.append({name})")
        self.say(indent, f"at{name} = len(list{name}) - 1")
        self.say(indent, "for block in self.blocks:")
        self.say(indent + 1, f"{name} = block({name} * 0.5 + list{name}[at{name}])")
        self.say(indent + 1, f"at{name} -= 1")
        self.names.append(name)

    def skips(self, indent: int) -> None:
        name = self.new()
        self.say(indent, f"list{name} = [{self.value()}, {self.value()} * 0.5]")
        self.say(indent, f"at{name} = len(list{name}) - 1")
        self.say(indent, f"{name} = list{name}[at{name}]")
        self.say(indent, f"at{name} -= {self.pick(['1', 'index', 'int(flag)'])}")
        self.say(indent, f"{name} = {name} * 0.5 + list{name}[at{name}]")
        self.names.append(name)

    def autocast_block(self, indent: int) -> None:
        name = self.new()
        x = self.value()
        condition = self.pick(["flag", "self.training", "{x}.dtype == torch.float32"]).format(x=x)
        self.say(indent, f"{name} = {x} * 0.5")
        self.say(indent, self.pick(BLOCKS).format(condition=condition))
        known = list(self.names)
        self.names.append(name)
        if self.draw(st.booleans()):
            self.say(indent + 1, f"{name} = {name}.float()")
        for _ in range(self.draw(st.integers(0, 2))):
            self.statement(indent + 1, nested=True)
        self.say(indent + 1, f"{name} = {self.expression()}")
        if self.draw(st.integers(0, 3)):
            self.say(indent, f"{name} = {name}.float() * 1.0")
        self.names = known + [name]

    def statement(self, indent: int, nested: bool = False) -> None:
        kinds = [self.assign] * 3 + [self.norm_and_activation, self.unread, self.choose, self.refine, self.choose_local]
        if self.under_autocast:
            kinds += [self.autocast_block] * (1 if nested else 4)
        if not nested:
            kinds += [self.branch, self.branch, self.loop, self.leave_loop, self.leave, self.statistics]
            kinds += [self.skips, self.skips_of_blocks, self.write_to_copy]
        self.pick(kinds)(indent)


def _call(draw: Callable[..., Any]) -> Call:
    return Call(
        key=draw(st.sampled_from("abc")),
        index=draw(st.integers(0, 1)),
        flag=draw(st.booleans()),
        as_list=draw(st.booleans()),
        training=draw(st.sampled_from([True, True, False])),
        rows=draw(st.sampled_from([4, 4, 4, 2])),
        special=draw(st.sampled_from(["", "", "", "bounds", "bounds", "nan", "inf"])),
        then=draw(st.sampled_from(["backward"] * 8 + [""] * 4 + EDITS)),
    )


def _model(body: _Body, value: str, image: bool, dtype: str, calls: Sequence[Call]) -> Model:
    layer, norm, size = ("nn.Conv2d(4, 4, 1)", "nn.BatchNorm2d(4)", "4") if image else (
        "nn.Linear(6, 6)", "nn.BatchNorm1d(6)", "6"
    )  # fmt: skip
    source = HEADER.format(layer=layer, norm=norm, size=size)
    source += "\n".join([SIGNATURE, *body.lines, f"        return {body.names[-1]} + {value} * 0.5", ""])
    return Model(source, dtype, image, calls)


def _put_under_autocast(draw: Callable[..., Any], calls: Sequence[Call], may_go_on: bool) -> None:
    for number, call in enumerate(calls):
        call.around = draw(st.sampled_from(OFTEN))
        # Such a backward repeats the forward, and no version counter tells of a change to data.
        call.backward_inside = draw(st.integers(0, 4)) == 4 and not any(".data" in each.then for each in calls)
        # Autocast's cache has what a parameter was before a change, which lowered modules read anew.
        unchanged = number > 0 and calls[number - 1].then not in EDITS
        if may_go_on and unchanged and draw(st.booleans()):
            call.around = None


@st.composite
def models(draw: Callable[..., Any], under_autocast: bool = False) -> Model:
    """Draws a module of up to eight statements, and up to five calls of it.

    With ``under_autocast``, it has blocks of autocast, and is mostly called under autocast.
    """
    image = draw(st.integers(0, 3)) == 3
    body = _Body(draw, image, under_autocast)
    # A cell has no plan under autocast, and shares no casts with calls that have one.
    may_go_on = under_autocast and draw(st.integers(0, 2)) > 0
    if may_go_on:
        body.values = VALUES
    for _ in range(draw(st.integers(1, 8))):
        body.statement(2)
    value = body.value()
    others = ["float32"] * 6 if under_autocast else []
    dtype = draw(st.sampled_from(others + ["float32"] * 4 + ["float64", "bfloat16", "float16"]))
    calls = [_call(draw) for _ in range(draw(st.integers(2, 5)))]
    if under_autocast:
        _put_under_autocast(draw, calls, may_go_on)
    return _model(body, value, image, dtype, calls)


@st.composite
def loops(draw: Callable[..., Any]) -> Model:
    """Draws a module of one or two loops that data leave, and steps of it with other data.

    Nothing in the loops keeps a branch from becoming one operator: no norm, and no random number.
    """
    body = _Body(draw, image=False)
    body.values = ["self.first({x})", "self.second({x})", "{x} - {y}", "{x} * -1.5"]
    for _ in range(draw(st.integers(1, 2))):
        body.leave_loop(2)
    flag = draw(st.booleans())
    steps = [Call("a", 0, flag, False, True, 4, "", "backward") for _ in range(6)]
    return _model(body, body.value(), False, "float32", steps)
