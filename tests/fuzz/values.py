"""Statements that make values: operators, random numbers, in-place writes, factories, data-dependent sizes."""

from collections.abc import Sequence

from hypothesis import strategies as st

from .writer import Writer

IN_PLACE = [
    "{x}.mul_(0.5)", "{x}.add_({y})", "{x}.relu_()", "{x}[0].mul_(2.0)", "{x}[:, 1:].add_(1.0)",
    "{x}[1:].copy_({y}[1:])",
    "{x}.t().sub_({y}.t())", "{x}[0, 0] = 3.0", "{x}[:, 0] = {y}[:, 1]", "{x}.clamp_(min=-0.5)", "{x} += {y}",
    "{x}.view(-1)[2:4].zero_()", "{x}.masked_fill_({y} > 0, 0.25)", "{x}.select(1, 0).tanh_()",
    "{x}.unsqueeze(0).div_(2.0)",
    "{x}[1:, 1:] = {y}[1:, 1:] * 2", "{x}[::2] *= 3.0", "{x}[-1] -= {y}[0]", "{x}[{y} > 0.5] = 0.5", "{x}.copy_({y})",
]  # fmt: skip

# Without a dtype, these have PyTorch's default one, float32, while inputs may be float64.
FACTORIES = [
    "torch.zeros({rows}, {columns})", "torch.ones([{rows}, {columns}])", "torch.full([{rows}, {columns}], 0.5)",
    "{x}.new_zeros({rows}, {columns})", "{x}.new_full([{rows}, {columns}], 2.0)", "torch.zeros_like({x})",
    "torch.empty_like({x}).copy_({y})", "torch.empty({rows}, {columns}).fill_(0.25)",
    "torch.zeros({x}.size(), dtype={x}.dtype)",
    "torch.arange({size}.0).view({rows}, {columns})", "torch.linspace(0, 1, {size}).view({rows}, {columns})",
    "torch.zeros({x}.size(0), {columns}, device={x}.device)", "torch.tensor([[0.5] * {columns}] * {rows})",
]  # fmt: skip
RANDOM_FACTORIES = ["torch.rand({rows}, {columns})", "torch.rand_like({x})", "torch.randn({rows}, {columns})"]
INTO_FACTORY = [
    "{z} += {y}", "{z}[1:] = {y}[1:]", "{z}[:, 0] += {y}[:, 1]", "{z}.copy_({y})", "{z}[0] = 1.0",
    "{z}.sub_({y}, alpha=0.5)",
    "{z}[:, 1:].copy_({y}[:, :-1])", "{z}[torch.tensor([0, 1])] = {y}[:2].to({z}.dtype)",
]  # fmt: skip
# These are for equal dtypes: products and sums that are written into a lower dtype are rounded in another order.
INTO_FACTORY_OF_ONE_TYPE = INTO_FACTORY + [
    "{z} *= {y}",
    "{z}.add_({y}.sum(0))",
    "{z}.lerp_({y}, 0.5)",
    "{z}.addmm_({y}, {y}.t() @ {y})",
]

# Each of these has the shape of x, by way of sizes that depend on data.
OF_DATA = [
    "{x} + {y}[{y}[:, 0] > 0].sum(0)", "{x} * float(torch.nonzero({y} > 0).size(0))",
    "torch.repeat_interleave({x}, ({y}[:, 0] > 0).long() + 1, dim=0)[: {x}.size(0)]",
    "torch.cat([{x}[{y}[:, 0] > 0], {x}[{y}[:, 0] <= 0]])", "{x} + torch.masked_select({y}, {x} > 0).sum()",
    "{x}[torch.nonzero({y}[:, 1] > -9.0).squeeze(1)]",
    "{x}[torch.unique(({y}[:, 0] > 0).long(), return_inverse=True)[1]]",
    "torch.zeros_like({x}).index_put([torch.nonzero({y}[:, 0] > 0).squeeze(1)], {x}[{y}[:, 0] > 0])",
    "torch.cat([{y}[{y}[:, 0] > 0].tanh(), {x}])[: {x}.size(0)]",
]  # fmt: skip


def assign(w: Writer, indent: int) -> None:
    shape = w.shape()
    name = w.name()
    w.say(indent, f"{name} = {w.expression(shape)}")
    w.know(name, shape)


def drop_out(w: Writer, indent: int) -> None:
    """Writes a dropout, whose numbers are drawn whether its result is read or not."""
    shape = w.shape()
    name = w.name()
    w.say(indent, f"{name} = F.dropout({w.tensor(shape)}, 0.3)")
    w.know(name, shape)
    if w.chance():
        w.returned.append(name)


def change_shape(w: Writer, indent: int) -> None:
    """Writes a product or a transpose, whose result has another shape."""
    rows, columns = w.shape()
    x = w.tensor((rows, columns))
    partners = [shape for shape in sorted(w.names) if shape[0] == columns]
    name = w.name()
    if partners and w.chance():
        partner = w.pick(partners)
        w.say(indent, f"{name} = {x} @ {w.tensor(partner)}")
        shape = (rows, partner[1])
    else:
        w.say(indent, f"{name} = {x}.{w.pick(['t()', 'transpose(0, 1)', 't().contiguous()', 'permute(1, 0)'])}")
        shape = (columns, rows)
    w.know(name, shape)


def write(w: Writer, indent: int) -> None:
    """Writes in-place operators on a copy of a tensor, and often on a view of the copy."""
    shape = w.shape()
    name = w.name()
    w.say(indent, f"{name} = {w.tensor(shape)} * 1.25")
    alias = name
    if w.chance():
        alias = f"{name}_view"
        w.say(indent, f"{alias} = {name}[:]")
    for _ in range(w.draw(st.integers(1, 2))):
        w.say(indent, w.pick(IN_PLACE).format(x=w.pick([name, alias]), y=w.tensor(shape)))
    w.know(name, shape)
    if alias != name:
        w.know(alias, shape)


def factory(w: Writer, indent: int, options: Sequence[str] = FACTORIES) -> str:
    """Writes a tensor that the method makes, often without a dtype, and in-place operators on it."""
    shape = w.shape()
    rows, columns = shape
    name = w.name()
    x, y = w.tensor(shape), w.tensor(shape)
    made = w.pick(options).format(x=x, y=y, rows=rows, columns=columns, size=rows * columns)
    w.say(indent, f"z{name} = {made}")
    for _ in range(w.draw(st.integers(1, 2))):
        w.say(
            indent,
            w.pick(INTO_FACTORY_OF_ONE_TYPE if w.single else INTO_FACTORY).format(z=f"z{name}", y=w.tensor(shape)),
        )
    w.say(indent, f"{name} = {w.pick(['z{0}', '(z{0} + {1})', '({1} * z{0})']).format(name, x)}.to({x}.dtype) * 1.0")
    w.know(name, shape)
    return name


def random_factory(w: Writer, indent: int) -> None:
    """Writes a factory of random numbers and returns its result: TorchScript draws none that are not read."""
    w.returned.append(factory(w, indent, RANDOM_FACTORIES))


def of_data(w: Writer, indent: int) -> None:
    """Writes operators on sizes that depend on data."""
    shape = w.shape()
    name = w.name()
    w.say(indent, f"{name} = {w.pick(OF_DATA).format(x=w.tensor(shape), y=w.tensor(shape))}")
    w.know(name, shape)


def collect(w: Writer, indent: int) -> None:
    """Writes a list that is filled step by step."""
    shape = w.shape()
    name = w.name()
    w.say(indent, f"l{name} = [{w.tensor(shape)}]")
    for _ in range(w.draw(st.integers(1, 2))):
        w.say(indent, f"l{name}.append({w.expression(shape)})")
    reduce = w.pick(["torch.stack(l{0}).mean(0)", "l{0}[-1] * l{0}[0]", "torch.cat(l{0}, 0)[: l{0}[0].size(0)]"])
    w.say(indent, f"{name} = {reduce.format(name)}")
    w.know(name, shape)


def collect_by_name(w: Writer, indent: int) -> None:
    """Writes a dict that is filled step by step, whose entries are replaced and read."""
    shape = w.shape()
    name = w.name()
    w.say(indent, f'd{name} = {{"a": {w.tensor(shape)}}}')
    for key in w.pick([["b"], ["b", "a"], ["a", "a"], ["b", "c", "a"]]):
        value = w.pick([w.expression(shape), f'd{name}["a"] * 0.5 + {w.tensor(shape)}'])
        w.say(indent, f'd{name}["{key}"] = {value}')
    value = w.pick(['d{0}["a"] * 1.5', "torch.stack(list(d{0}.values())).sum(0)", 'd{0}.pop("a") - float(len(d{0}))'])
    w.say(indent, f"{name} = {value.format(name)}")
    w.know(name, shape)
