"""Statements that compute gradients inside of the method."""

from .writer import Writer


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
