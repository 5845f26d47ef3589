"""Draws programs: source text of a function of three tensors, as people write them for TorchScript.

Every float tensor in a program has rank 2 and one of a few shapes, so that any two of one shape can be combined. The
generator keeps track of which names hold what; Hypothesis chooses, and shrinks what fails.
"""

from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple

from hypothesis import strategies as st

Shape = Tuple[int, int]

# A cast that leaves a region is made a second time behind it, so that gradients of the two are rounded one by one: what a
# cast makes is not returned.
UNARY = [
    "torch.relu({x})", "torch.tanh({x})", "torch.sigmoid({x})", "{x}.exp().clamp(max=3.0)", "{x} * 2", "1.5 - {x}",
    "{x}.neg()", "F.gelu({x})", "F.silu({x})", "F.leaky_relu({x}, 0.1)", "{x}.abs()", "{x}.square()", "{x}.clone()",
    "{x} / 3.0", "{x}.clamp(-1.0, 1.0)", "torch.where({x} > 0, {x}, {x} * 0.1)", "{x}.softmax(-1)",
    "{x}.log_softmax(0)", "F.layer_norm({x}, {x}.size()[1:])", "{x}.flip(0)", "{x}.cumsum(1)",
    "{x}.detach()", "({x} * 1.5).contiguous()", "{x}.view({x}.size(0), -1)", "{x}.reshape(-1).view({x}.size())",
    "{x}.masked_fill({x} > 1, 0.5)", "{x}.unsqueeze(0).squeeze(0)", "{x}.to(torch.float32).to(torch.float64) * 1.0", "torch.sin({x})",
    "{x}.to(torch.float64)", "{x}.type_as({x})", "{x}.contiguous()", "{x}.double()", "{x}.to({x}.device)",
    "{x}.flatten(1)", "{x}.expand({x}.size(0), -1)", "{x}.reshape({x}.size())", "{x}.expand_as({x})", "{x}.cpu()",
    "{x}.roll(1, 0)", "{x}.triu()", "F.normalize({x}, dim=-1)", "{x}.sort(1)[0]", "{x}.logit(0.1)",
]  # fmt: skip
BINARY = [
    "{x} + {y}", "{x} * {y}", "{x} - 2 * {y}", "{x} / ({y}.abs() + 1)", "torch.maximum({x}, {y})",
    "torch.where({x} > {y}, {x}, {y})", "torch.addcmul({x}, {y}, {x}, value=0.5)", "torch.lerp({x}, {y}, 0.3)",
    "{x} @ {y}.t() @ {y} * 0.1", "torch.stack([{x}, {y}]).sum(0)", "torch.cat([{x}, {y}], 1)[:, :{x}.size(1)]",
    "torch.atan2({x}, {y} + 3)", "{x} + {y}.mean()", "{x} * {y}.sum(0, keepdim=True)", "{x} - {y}.amax(1, keepdim=True)",
    "{x} + {y}[0]", "torch.chunk(torch.cat([{x}, {y}], 0), 2)[1]", "({x} + {y}).t().contiguous().t()",
    "torch.unbind(torch.stack([{x}, {y}], 2), 2)[0]", "{x} * {y}.var(1, keepdim=True)",
]  # fmt: skip
IN_PLACE = [
    "{x}.mul_(0.5)", "{x}.add_({y})", "{x}.relu_()", "{x}[0].mul_(2.0)", "{x}[:, 1:].add_(1.0)", "{x}[1:].copy_({y}[1:])",
    "{x}.t().sub_({y}.t())", "{x}[0, 0] = 3.0", "{x}[:, 0] = {y}[:, 1]", "{x}.clamp_(min=-0.5)", "{x} += {y}",
    "{x}.view(-1)[2:4].zero_()", "{x}.masked_fill_({y} > 0, 0.25)", "{x}.select(1, 0).tanh_()", "{x}.unsqueeze(0).div_(2.0)",
]  # fmt: skip
CONDITIONS = [
    "{x}.size(0) > 2", "{x}.sum() > 0", "bool({x}.max() > 1.0)", "{x}.dim() == 3", "{x}.mean().item() < 0.1",
    "{x}.size(1) == {x}.size(0)",
]  # fmt: skip


@dataclass
class Program:
    source: str
    shapes: List[Shape]
    needs_grad: List[bool]


@dataclass
class _Writer:
    """Lines of a function body and the names that are known at the end of it."""

    draw: Callable
    names: Dict[Shape, List[str]]
    fresh: List[str] = field(default_factory=list)  # names of the function's own values: may be written to
    lines: List[str] = field(default_factory=list)
    counter: int = 0
    returned: List[str] = field(default_factory=list)

    def pick(self, options: list):
        return self.draw(st.sampled_from(options))

    def tensor(self, shape: Shape) -> str:
        return self.pick(self.names[shape])

    def shape(self) -> Shape:
        return self.pick(sorted(self.names))

    def say(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def name(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def expression(self, shape: Shape) -> str:
        x, y = self.tensor(shape), self.tensor(shape)
        return self.pick(UNARY + BINARY).format(x=x, y=y)

    def assign(self, indent: int) -> None:
        shape = self.shape()
        name = self.name()
        self.say(indent, f"{name} = {self.expression(shape)}")
        self.names[shape].append(name)
        self.fresh.append(name)

    def drop_out(self, indent: int) -> None:
        """Random numbers. The result is returned: TorchScript does not draw those that nobody reads."""
        shape = self.shape()
        name = self.name()
        self.say(indent, f"{name} = F.dropout({self.tensor(shape)}, 0.3)")
        self.names[shape].append(name)
        self.returned.append(name)

    def change_shape(self, indent: int) -> None:
        """A product or a transpose: a tensor of another shape."""
        rows, columns = self.shape()
        x = self.tensor((rows, columns))
        partners = [shape for shape in sorted(self.names) if shape[0] == columns]
        name = self.name()
        if partners and self.draw(st.booleans()):
            partner = self.pick(partners)
            self.say(indent, f"{name} = {x} @ {self.tensor(partner)}")
            shape = (rows, partner[1])
        else:
            self.say(indent, f"{name} = {x}.{self.pick(['t()', 'transpose(0, 1)', 't().contiguous()', 'permute(1, 0)'])}")
            shape = (columns, rows)
        self.names.setdefault(shape, []).append(name)

    def write(self, indent: int) -> None:
        """An in-place operator on a copy of what is there, and often on a view of it."""
        shape = self.shape()
        name = self.name()
        self.say(indent, f"{name} = {self.tensor(shape)} * 1.25")
        alias = name
        if self.draw(st.booleans()):
            alias = f"{name}_view"
            self.say(indent, f"{alias} = {name}[:]")
        for _ in range(self.draw(st.integers(1, 2))):
            self.say(indent, self.pick(IN_PLACE).format(x=self.pick([name, alias]), y=self.tensor(shape)))
        self.names[shape].append(name)
        if alias != name:
            self.names[shape].append(alias)

    def branch(self, indent: int, depth: int) -> None:
        shape = self.shape()
        name = self.name()
        condition = self.pick(CONDITIONS).format(x=self.tensor(shape))
        self.say(indent, f"{name} = {self.tensor(shape)}")
        self.say(indent, f"if {condition}:")
        self.inner(indent + 1, depth, name, shape)
        if self.draw(st.booleans()):
            self.say(indent, "else:")
            self.inner(indent + 1, depth, name, shape)
        self.names[shape].append(name)

    def loop(self, indent: int, depth: int) -> None:
        shape = self.shape()
        name = self.name()
        self.say(indent, f"{name} = {self.tensor(shape)} * 0.5")
        if self.draw(st.booleans()):
            count = self.pick(["2", "3", f"{name}.size(0) - 1"])
            self.say(indent, f"for i{name} in range({count}):")
        else:
            self.say(indent, f"n{name} = 0")
            limit = self.pick([f"n{name} < 2", f"n{name} < 3 and bool({name}.sum() < 4.0)"])
            self.say(indent, f"while {limit}:")
            self.say(indent + 1, f"n{name} += 1")
        self.inner(indent + 1, depth, name, shape)
        self.names[shape].append(name)

    def collect(self, indent: int) -> None:
        """A list that is filled step by step."""
        shape = self.shape()
        name = self.name()
        self.say(indent, f"l{name} = [{self.tensor(shape)}]")
        for _ in range(self.draw(st.integers(1, 2))):
            self.say(indent, f"l{name}.append({self.expression(shape)})")
        reduce = self.pick(["torch.stack(l{0}).mean(0)", "l{0}[-1] * l{0}[0]", "torch.cat(l{0}, 0)[: l{0}[0].size(0)]"])
        self.say(indent, f"{name} = {reduce.format(name)}")
        self.names[shape].append(name)

    def inner(self, indent: int, depth: int, name: str, shape: Shape) -> None:
        """A block that gives ``name`` another value; what else it names is gone after it."""
        known = {key: list(value) for key, value in self.names.items()}
        self.names[shape].append(name)
        for _ in range(self.draw(st.integers(0, 2))):
            self.statement(indent, depth + 1)
        self.say(indent, f"{name} = {self.expression(shape)} * 0.5 + {name} * 0.25")
        self.names = known

    def statement(self, indent: int, depth: int = 0) -> None:
        kinds = [self.assign, self.assign, self.assign, self.write, self.collect]
        if depth == 0:
            kinds += [self.change_shape, self.drop_out]
        nested = [self.branch, self.loop] if depth < 2 else []
        kind = self.pick(kinds + nested)
        if kind in nested:
            kind(indent, depth)
        else:
            kind(indent)


@st.composite
def programs(draw: Callable) -> Program:
    """A program of up to ten statements that returns up to three tensors."""
    rows, columns = draw(st.sampled_from([(3, 4), (2, 2), (4, 3)]))
    shapes = [(rows, columns), (rows, columns), (columns, rows)]
    names: Dict[Shape, List[str]] = {}
    for name, shape in zip("abc", shapes):
        names.setdefault(shape, []).append(name)
    writer = _Writer(draw, names)
    for _ in range(draw(st.integers(1, 10))):
        writer.statement(1)
    everything = [name for shape in sorted(writer.names) for name in writer.names[shape]]
    results = draw(st.lists(st.sampled_from(everything), min_size=1, max_size=3)) + writer.returned
    body = "\n".join(writer.lines)
    returned = ", ".join(results) + ","
    types = ", ".join(["Tensor"] * len(results))
    source = f"def program(a: Tensor, b: Tensor, c: Tensor) -> Tuple[{types}]:\n{body}\n    return ({returned})\n"
    needs_grad = draw(st.lists(st.booleans(), min_size=3, max_size=3).filter(any))
    return Program(source, shapes, needs_grad)
