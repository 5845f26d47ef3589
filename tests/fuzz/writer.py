"""Writes statements, and knows the names that they define."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Shape = tuple[int, int]

# No result of a cast is returned directly: the cast would be made a second time after the region, and the gradients of
# the two casts would be rounded separately.
UNARY = [
    "torch.relu({x})", "torch.tanh({x})", "torch.sigmoid({x})", "{x}.exp().clamp(max=3.0)", "{x} * 2", "1.5 - {x}",
    "{x}.neg()", "F.gelu({x})", "F.silu({x})", "F.leaky_relu({x}, 0.1)", "{x}.abs()", "{x}.square()", "{x}.clone()",
    "{x} / 3.0", "{x}.clamp(-1.0, 1.0)", "torch.where({x} > 0, {x}, {x} * 0.1)", "{x}.softmax(-1)",
    "{x}.log_softmax(0)", "F.layer_norm({x}, {x}.size()[1:])", "{x}.flip(0)", "{x}.cumsum(1)",
    "{x}.detach()", "({x} * 1.5).contiguous()", "{x}.view({x}.size(0), -1)", "{x}.reshape(-1).view({x}.size())",
    "{x}.masked_fill({x} > 1, 0.5)", "{x}.unsqueeze(0).squeeze(0)", "{x}.to(torch.float32).to(torch.float64) * 1.0",
    "torch.sin({x})",
    "{x}.to(torch.float64)", "{x}.type_as({x})", "{x}.contiguous()", "{x}.double()", "{x}.to({x}.device)",
    "{x}.flatten(1)", "{x}.expand({x}.size(0), -1)", "{x}.reshape({x}.size())", "{x}.expand_as({x})", "{x}.cpu()",
    "{x}.roll(1, 0)", "{x}.triu()", "F.normalize({x}, dim=-1)", "{x}.sort(1)[0]", "{x}.logit(0.1)",
]  # fmt: skip
BINARY = [
    "{x} + {y}", "{x} * {y}", "{x} - 2 * {y}", "{x} / ({y}.abs() + 1)", "torch.maximum({x}, {y})",
    "torch.where({x} > {y}, {x}, {y})", "torch.addcmul({x}, {y}, {x}, value=0.5)", "torch.lerp({x}, {y}, 0.3)",
    "{x} @ {y}.t() @ {y} * 0.1", "torch.stack([{x}, {y}]).sum(0)", "torch.cat([{x}, {y}], 1)[:, :{x}.size(1)]",
    "torch.atan2({x}, {y} + 3)", "{x} + {y}.mean()", "{x} * {y}.sum(0, keepdim=True)",
    "{x} - {y}.amax(1, keepdim=True)",
    "{x} + {y}[0]", "torch.chunk(torch.cat([{x}, {y}], 0), 2)[1]", "({x} + {y}).t().contiguous().t()",
    "torch.unbind(torch.stack([{x}, {y}], 2), 2)[0]", "{x} * {y}.var(1, keepdim=True)",
]  # fmt: skip


@dataclass
class Writer:
    """The lines of a function body, and the names that are defined at the end of it, by shape."""

    draw: Callable[..., Any]
    names: dict[Shape, list[str]]
    leaves: list[tuple[str, Shape]]  # the inputs that require grad
    single: bool = False  # the inputs are float32, which autocast casts
    under_autocast: bool = False  # blocks of autocast have any settings, and any statements in them
    of_gradients: bool = False  # most statements ask for gradients
    lines: list[str] = field(default_factory=list)
    counter: int = 0
    returned: list[str] = field(default_factory=list)

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def tensor(self, shape: Shape) -> str:
        return self.pick(self.names[shape])

    def shape(self) -> Shape:
        return self.pick(sorted(self.names))

    def say(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def name(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def know(self, name: str, shape: Shape) -> None:
        self.names.setdefault(shape, []).append(name)

    def expression(self, shape: Shape) -> str:
        x, y = self.tensor(shape), self.tensor(shape)
        options = UNARY + BINARY
        if self.single:
            options = [each for each in options if "64" not in each and "double" not in each]
        return self.pick(options).format(x=x, y=y)
