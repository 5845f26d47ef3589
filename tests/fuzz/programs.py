"""Draws programs: the source of functions of three tensors, as people write them for TorchScript.

Every float tensor in a program has rank 2 and one of a few shapes, so that any two of the same shape can be combined.
The generator knows the shape of every name. Hypothesis makes the choices, and shrinks programs that fail. ``values``,
``control`` and ``gradients`` have the kinds of statements.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from . import control, gradients, values
from .autocast import OFTEN
from .writer import Shape, Writer

# What the caller's hook does with the gradient of an input: nothing; replace it; or, once it is accumulated, update the
# input, as an optimizer that runs in the backward does.
HOOKS = ["", "", "", "", "replace", "update"]


@dataclass
class Program:
    source: str
    shapes: list[Shape]
    needs_grad: list[bool]
    hooks: list[str] = field(default_factory=lambda: ["", "", ""])
    single: bool = False  # the inputs are float32 in place of float64
    twice: bool = False  # the caller differentiates the gradients again
    around: str = ""  # what the caller has around the call, of AROUND in autocast.py
    of_gradients: bool = False  # most of it are gradients, whose sums have another order
    backward_inside: bool = False  # the caller has it around the backward as well


def statement(w: Writer, indent: int, depth: int = 0) -> None:
    kinds: list[Callable[..., Any]] = [values.assign] * 4 + [values.write, values.collect]
    if w.of_gradients:
        kinds += gradients.KINDS * 2
    kinds += [values.factory, values.of_data, values.collect_by_name, control.assertion, gradients.inner_grad]
    if depth == 0:
        kinds += [values.change_shape, values.drop_out, values.random_factory]
    nested = [control.branch, control.loop, control.no_grad] if depth < 2 else []
    if nested and w.single:
        nested += [control.autocast_block] * 3 if w.under_autocast else [control.autocast] * 2
    kind = w.pick(kinds + nested)
    if kind in nested:
        kind(w, indent, depth, statement)
    else:
        kind(w, indent)


@st.composite
def programs(draw: Callable[..., Any], under_autocast: bool = False, of_gradients: bool = False) -> Program:
    """Draws a program of up to ten statements that returns up to three tensors.

    With ``under_autocast``, it is in float32, has blocks of autocast, and is mostly called under autocast.
    With ``of_gradients``, most programs ask for gradients in several ways, and for gradients of gradients.
    """
    rows, columns = draw(st.sampled_from([(3, 4), (2, 2), (4, 3)]))
    shapes = [(rows, columns), (rows, columns), (columns, rows)]
    needs_grad = draw(st.lists(st.booleans(), min_size=3, max_size=3).filter(any))
    hooks = [draw(st.sampled_from(HOOKS)) if needed else "" for needed in needs_grad]
    names: dict[Shape, list[str]] = {}
    for name, shape in zip("abc", shapes, strict=True):
        names.setdefault(shape, []).append(name)
    leaves = [(name, shape) for name, shape, needed in zip("abc", shapes, needs_grad, strict=True) if needed]
    single = under_autocast or draw(st.integers(0, 2)) == 2
    writer = Writer(draw, names, leaves, single, under_autocast, of_gradients)
    for _ in range(draw(st.integers(1, 5 if of_gradients else 10))):
        statement(writer, 1)
    if of_gradients:
        draw(st.sampled_from(gradients.KINDS))(writer, 1)
    everything = [name for shape in sorted(writer.names) for name in writer.names[shape]]
    results = draw(st.lists(st.sampled_from(everything), min_size=1, max_size=3)) + writer.returned
    body = "\n".join(writer.lines)
    returned = ", ".join(results) + ","
    types = ", ".join(["Tensor"] * len(results))
    source = f"def program(a: Tensor, b: Tensor, c: Tensor) -> tuple[{types}]:\n{body}\n    return ({returned})\n"
    twice = "update" not in hooks and draw(st.integers(0, 4)) == 4
    program = Program(source, shapes, needs_grad, hooks, writer.single, twice, of_gradients=of_gradients)
    if under_autocast:
        program.around = draw(st.sampled_from(OFTEN))
        program.backward_inside = draw(st.integers(0, 5)) == 5
    return program
