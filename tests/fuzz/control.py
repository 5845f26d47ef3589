"""Statements that control what runs, and how: branches, loops, assertions, no_grad and autocast blocks."""

from collections.abc import Callable

from hypothesis import strategies as st

from .autocast import BLOCKS
from .writer import Shape, Writer

CONDITIONS = [
    "{x}.size(0) > 2", "{x}.sum() > 0", "bool({x}.max() > 1.0)", "{x}.dim() == 3", "{x}.mean().item() < 0.1",
    "{x}.size(1) == {x}.size(0)",
]  # fmt: skip
QUESTIONS = [
    "{x}.requires_grad", "not {x}.requires_grad", "{x}.is_leaf", "{x}.requires_grad and not {x}.detach().requires_grad",
    "torch.is_grad_enabled()",
]  # fmt: skip
ASSERTIONS = [
    "assert bool(torch.isfinite({x}).all())", "assert bool(({x} != 0).any())", "assert {x}.size(0) > 0",
    "assert bool({x}.abs().sum() > 1e-3)", "assert bool({x}.max() < 4.0), 'too large'",
]  # fmt: skip

Statement = Callable[[Writer, int, int], None]


def inner(w: Writer, indent: int, depth: int, name: str, shape: Shape, statement: Statement) -> None:
    """Writes a block that gives ``name`` another value. Other names that it defines are unknown after it."""
    known = {key: list(value) for key, value in w.names.items()}
    w.names[shape].append(name)
    for _ in range(w.draw(st.integers(0, 2))):
        statement(w, indent, depth + 1)
    w.say(indent, f"{name} = {w.expression(shape)} * 0.5 + {name} * 0.25")
    w.names = known


def branch(w: Writer, indent: int, depth: int, statement: Statement) -> None:
    shape = w.shape()
    name = w.name()
    condition = w.pick(CONDITIONS + QUESTIONS).format(x=w.tensor(shape))
    w.say(indent, f"{name} = {w.tensor(shape)}")
    w.say(indent, f"if {condition}:")
    inner(w, indent + 1, depth, name, shape, statement)
    if w.chance():
        w.say(indent, "else:")
        inner(w, indent + 1, depth, name, shape, statement)
    w.know(name, shape)


def loop(w: Writer, indent: int, depth: int, statement: Statement) -> None:
    shape = w.shape()
    name = w.name()
    w.say(indent, f"{name} = {w.tensor(shape)} * 0.5")
    if w.chance():
        count = w.pick(["2", "3", f"{name}.size(0) - 1"])
        w.say(indent, f"for i{name} in range({count}):")
    else:
        w.say(indent, f"n{name} = 0")
        limit = w.pick([f"n{name} < 2", f"n{name} < 3 and bool({name}.sum() < 4.0)"])
        w.say(indent, f"while {limit}:")
        w.say(indent + 1, f"n{name} += 1")
    if w.chance():
        leave(w, indent + 1, depth, name, shape, statement)
    inner(w, indent + 1, depth, name, shape, statement)
    if w.chance():
        leave(w, indent + 1, depth, name, shape, statement)
        inner(w, indent + 1, depth, name, shape, statement)
    w.know(name, shape)


def leave(w: Writer, indent: int, depth: int, name: str, shape: Shape, statement: Statement) -> None:
    """Writes a branch that leaves the loop, or goes on with its next iteration."""
    condition = w.pick(CONDITIONS).format(x=w.pick([name, w.tensor(shape)]))
    w.say(indent, f"if {condition}:")
    if w.chance():
        inner(w, indent + 1, depth + 1, name, shape, statement)
    further = w.chance()
    if further:  # on a second condition, behind which the first branch goes on
        condition = w.pick(CONDITIONS).format(x=w.pick([name, w.tensor(shape)]))
        w.say(indent + 1, f"if {condition}:")
    w.say(indent + 2 if further else indent + 1, w.pick(["break", "continue"]))
    if w.chance():
        condition = w.pick(CONDITIONS).format(x=w.pick([name, w.tensor(shape)]))
        w.say(indent, f"elif {condition}:")
        w.say(indent + 1, f"{name} = {name} * 1.5")
        if w.chance():
            w.say(indent + 1, w.pick(["break", "continue"]))


def no_grad(w: Writer, indent: int, depth: int, statement: Statement) -> None:
    shape = w.shape()
    name = w.name()
    w.say(indent, f"{name} = {w.tensor(shape)} * 0.5")
    w.say(indent, "with torch.no_grad():")
    inner(w, indent + 1, depth, name, shape, statement)
    w.know(name, shape)


def autocast(w: Writer, indent: int, depth: int, statement: Statement) -> None:
    """Writes a block in which products are bfloat16. After it, the value is float32 again."""
    shape = w.shape()
    name = w.name()
    x, y = w.tensor(shape), w.tensor(shape)
    w.say(indent, 'with torch.autocast("cpu", dtype=torch.bfloat16):')
    product = w.pick(["{x} @ {y}.t() @ {x}", "F.linear({x}, {y}) @ {y}", "torch.tanh({x}) @ {x}.t() @ {y}"])
    w.say(indent + 1, f"{name} = {product.format(x=x, y=y)}")
    if w.chance():
        w.say(indent + 1, f"{name} = {name} * 0.5")
    w.say(indent, f"{name} = {name}.float()")
    w.know(name, shape)


def autocast_block(w: Writer, indent: int, depth: int, statement: Statement) -> None:
    """Writes a block with any settings and any statements in it. After it, the value is mostly float32 again."""
    shape = w.shape()
    name = w.name()
    x = w.tensor(shape)
    w.say(indent, f"{name} = {x} * 0.5")
    condition = w.pick(["{x}.size(0) > 2", "{x}.dtype == torch.float32", "bool({x}.sum() > 0)"]).format(x=x)
    w.say(indent, w.pick(BLOCKS).format(condition=condition))
    if w.chance():
        w.say(indent + 1, f"{name} = {name}.float()")
    if w.chance():
        product = w.pick(
            ["{x} @ {y}.t() @ {x}", "F.linear({x}, {y}) @ {y}", "torch.einsum('ij,kj,kl->il', {x}, {y}, {x})"]
        )
        w.say(indent + 1, f"{name} = {product.format(x=name, y=w.tensor(shape))}")
    inner(w, indent + 1, depth, name, shape, statement)
    if w.draw(st.integers(0, 3)):
        w.say(indent, f"{name} = {name}.float() * 1.0")
    w.know(name, shape)


def assertion(w: Writer, indent: int) -> None:
    w.say(indent, w.pick(ASSERTIONS).format(x=w.tensor(w.shape())))
