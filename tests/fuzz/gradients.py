"""Statements that compute gradients inside of the method."""

from hypothesis import strategies as st

from .writer import Shape, Writer

# What is asked for besides the gradient. The empty one frees the graph.
OPTIONS = [
    "create_graph=True", "create_graph=True", "create_graph=True", "create_graph=True, allow_unused=True",
    "create_graph=True, retain_graph=True, allow_unused=True", "retain_graph=True",
    "retain_graph=True, allow_unused=True", "retain_graph=True, create_graph=False",
    "create_graph=torch.is_grad_enabled()", "allow_unused=True",
]  # fmt: skip

# What becomes of a gradient g, with a tensor x of its shape.
USES = [
    "{g}",
    "{g} * 0.5",
    "torch.tanh({g}) * {x}",
    "{g} + {x}",
    "-{g}",
    "{g} * {g}",
    "{g}.detach() * {x}",
    "{g}.clone()",
]
TARGETS = [
    "input",
    "input",
    "input",
    "leaf",
    "leaf",
    "leaf",
    "kept leaf",
    "returned leaf",
    "marked",
    "marked",
    "middle",
    "middle",
    "view",
    "write",
    "any",
]
# What requires_grad_() marks. Those without an operator to run are the tensor itself.
MARKED = [
    "torch.tanh({x})",
    "{x} * 0.5",
    "{x}.double()",
    "{x}.contiguous()",
    "{x}.detach().double()",
    "{x}.detach().contiguous()",
    "torch.tanh({x}).double()",
]
REDUCTIONS = [
    "({x}).sum()",
    "({x}).mean()",
    "({x}).pow(2).sum()",
    "({x} * {y}).sum()",
    "({x}).norm()",
    "({x} + {y}).sum()",
]


def inner_grad(w: Writer, indent: int) -> None:
    """Writes a call of autograd.grad, often with create_graph, for an input or for a leaf that is made for it."""
    name = w.name()
    if w.leaves and w.chance():
        leaf, shape = w.pick(w.leaves)
    else:
        shape = w.shape()
        leaf = f"x{name}"
        w.say(indent, f"{leaf} = {w.tensor(shape)}.detach().clone().requires_grad_(True)")
    known = w.names[shape]
    w.names[shape] = [leaf, *known[-2:]]
    w.say(indent, f"y{name} = ({w.expression(shape)} * {leaf}).sum()")
    w.names[shape] = known
    options = w.pick(
        ["retain_graph=True", "create_graph=True", "create_graph=True", "retain_graph=True, create_graph=False"]
    )
    w.say(indent, f"g{name} = torch.autograd.grad([y{name}], [{leaf}], {options}, allow_unused=True)[0]")
    w.say(indent, f"{name} = {w.tensor(shape)} * 0.5")
    w.say(indent, f"if g{name} is not None:")
    w.say(indent + 1, f"{name} = {w.pick(['g{0} * 0.5', 'g{0} + {0}', 'torch.tanh(g{0}) * {0}']).format(name)}")
    w.know(name, shape)


def target(w: Writer, indent: int, name: str, shape: Shape) -> str:
    """Writes, or picks, what a gradient is asked for: an input, a new leaf, a value in the middle, or a view."""
    kind = w.pick(TARGETS)
    if kind == "any" and w.chance():
        return w.tensor(shape)
    of_shape = [leaf for leaf, known in w.leaves if known == shape]
    if kind == "input" and of_shape:
        return w.pick(of_shape)
    if kind == "kept leaf":
        w.say(indent, f"{name} = {w.tensor(shape)}.detach().requires_grad_(True)")
    elif kind == "returned leaf":
        w.say(indent, f"{name} = ({w.expression(shape)}).detach().requires_grad_(True)")
        if indent == 1:
            w.returned.append(name)
    elif kind == "marked":
        w.say(indent, f"{name} = {w.pick(MARKED).format(x=w.tensor(shape))}")
        if w.chance():
            w.say(indent, f"{name}r = {name} * 0.5")
            w.know(f"{name}r", shape)
        w.say(indent, f"{name}.requires_grad_(True)")
    elif kind == "middle" and of_shape:
        w.say(indent, f"{name} = {w.expression(shape)} + {w.pick(of_shape)} * 0.75")
    elif kind == "view" and of_shape:
        view = w.pick(["{x}[:]", "{x}.view({x}.size())", "{x}.view_as({x})"])
        w.say(indent, f"{name} = {view.format(x=w.pick(of_shape))}")
    elif kind == "write" and of_shape:
        w.say(indent, f"{name} = {w.pick(of_shape)} * 1.25")
        w.say(indent, w.pick(["{x}[0] = 0.5", "{x}.mul_(0.5)", "{x}[:, 1:].add_(1.0)"]).format(x=name))
    else:
        w.say(indent, f"{name} = {w.tensor(shape)}.detach().clone().requires_grad_(True)")
    w.know(name, shape)
    return name


def energy(w: Writer, indent: int, name: str, shape: Shape, reads: list[str]) -> None:
    """Writes a number that mostly depends on ``reads``, which are of the shape."""
    known = w.names[shape]
    w.names[shape] = [*known[-2:], *reads, *reads]
    steps = w.draw(st.integers(1, 3))
    for step in range(steps):
        w.say(indent, f"{name}h{step} = {w.expression(shape)}")
        w.names[shape] = [*w.names[shape], f"{name}h{step}"]
    read = "".join(f" + {x} * {0.5 + k}" for k, x in enumerate(reads)) if w.draw(st.integers(0, 9)) else ""
    value = w.pick(REDUCTIONS).format(x=f"{name}h{steps - 1}{read}", y=w.tensor(shape))
    w.say(indent, f"{name} = {value}")
    w.names[shape] = known


def use(w: Writer, indent: int, name: str, shape: Shape, gradient: str) -> None:
    """Writes a value that reads a gradient, which may be None."""
    w.say(indent, f"{name} = {w.tensor(shape)} * 0.5")
    w.say(indent, f"if {gradient} is not None:")
    w.say(indent + 1, f"{name} = {w.pick(USES).format(g=gradient, x=w.tensor(shape))}")
    w.know(name, shape)
    if indent == 1 and w.draw(st.integers(0, 3)):  # what is not read does not run
        w.returned.append(name)


def several_targets(w: Writer, indent: int) -> None:
    """Writes one call for up to three targets of up to two outputs."""
    shape = w.shape()
    name = w.name()
    targets = [target(w, indent, f"x{name}{k}", shape) for k in range(w.draw(st.integers(1, 3)))]
    outputs = [f"y{name}{k}" for k in range(w.draw(st.sampled_from([1, 1, 1, 2])))]
    for output in outputs:
        energy(w, indent, output, shape, targets)
    given = ""
    if w.draw(st.integers(0, 3)) == 3:
        each = [w.pick(["None", "{0} * 0.5", "torch.ones_like({0})"]).format(output) for output in outputs]
        w.say(indent, f"o{name}: list[Tensor | None] = [{', '.join(each)}]")
        given = f"grad_outputs=o{name}, "
    options = w.pick(OPTIONS)
    again = w.draw(st.integers(0, 4)) == 4
    for k in range(2 if again else 1):
        w.say(
            indent,
            f"g{name}{k} = torch.autograd.grad([{', '.join(outputs)}], [{', '.join(targets)}], {given}{options})",
        )
    for k in range(len(targets)):
        w.say(indent, f"g{name}_{k} = g{name}{w.pick([0, 1]) if again else 0}[{k}]")
        use(w, indent, f"{name}_{k}", shape, f"g{name}_{k}")
    if w.chance():
        shown = w.pick(outputs)
        w.say(indent, f"e{name} = {w.tensor(shape)} * {shown}")
        w.know(f"e{name}", shape)


def of_tensor(w: Writer, indent: int) -> None:
    """Writes a call for an output that is no number, with its gradient given."""
    shape = w.shape()
    name = w.name()
    x = target(w, indent, f"x{name}", shape)
    w.say(indent, f"y{name} = {w.expression(shape)} * {x}")
    w.say(indent, f"o{name}: list[Tensor | None] = [{w.expression(shape)}]")
    w.say(indent, f"g{name} = torch.autograd.grad([y{name}], [{x}], grad_outputs=o{name}, {w.pick(OPTIONS)})[0]")
    use(w, indent, name, shape, f"g{name}")


def gradient_of_gradient(w: Writer, indent: int) -> None:
    shape = w.shape()
    name = w.name()
    x = target(w, indent, f"x{name}", shape)
    energy(w, indent, f"y{name}", shape, [x])
    w.say(indent, f"g{name} = torch.autograd.grad([y{name}], [{x}], {w.pick(OPTIONS)})[0]")
    use(w, indent, f"f{name}", shape, f"g{name}")
    column = w.pick([f"f{name}.sum()", f"f{name}[:, 0].sum()", f"(f{name} * {x}).sum()", f"f{name}.square().sum()"])
    of = w.pick([x, x, w.tensor(shape)])
    w.say(indent, f"h{name} = torch.autograd.grad([{column}], [{of}], {w.pick(OPTIONS)})[0]")
    use(w, indent, name, shape, f"h{name}")


def steps_along_gradients(w: Writer, indent: int) -> None:
    """Writes a loop of steps along gradients, or one that collects gradients of rows."""
    shape = w.shape()
    name = w.name()
    known = w.names[shape]
    if w.chance():
        w.say(indent, f"{name} = {w.tensor(shape)} * 1.0")
        w.say(indent, f"for i{name} in range({w.pick(['2', '3', f'{name}.size(0) - 1'])}):")
        if w.chance():
            w.say(indent + 1, f"{name} = {name}.detach().requires_grad_(True)")
        else:
            w.say(indent + 1, f"if not {name}.requires_grad:")
            w.say(indent + 2, f"{name} = {name}.detach().requires_grad_(True)")
        energy(w, indent + 1, f"y{name}", shape, [name])
        w.say(indent + 1, f"g{name} = torch.autograd.grad([y{name}], [{name}], {w.pick(OPTIONS)})[0]")
        w.say(indent + 1, f"if g{name} is not None:")
        w.say(indent + 2, f"{name} = {name} - 0.1 * g{name}")
    else:
        x = target(w, indent, f"x{name}", shape)
        w.say(indent, f"l{name} = [{w.tensor(shape)}]")
        w.say(indent, f"t{name} = {w.expression(shape)} * {x}")
        w.say(indent, f"for i{name} in range({shape[1]}):")
        w.say(indent + 1, f"g{name} = torch.autograd.grad([t{name}[:, i{name}].sum()], [{x}], {w.pick(OPTIONS)})[0]")
        w.say(indent + 1, f"if g{name} is not None:")
        w.say(indent + 2, f"l{name}.append(g{name})")
        known = w.names[shape]
        w.say(indent, f"{name} = torch.stack(l{name}).sum(0)")
    w.names[shape] = [*known, name]


KINDS = [several_targets] * 4 + [of_tensor, gradient_of_gradient, gradient_of_gradient, steps_along_gradients]
