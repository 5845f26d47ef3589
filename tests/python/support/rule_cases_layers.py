"""Cases of test_rules.py: arithmetic, activations, matrices, convolutions, norms, dropout, embeddings and distances."""

from typing import Any

import torch

from support.rule_cases_tensors import BF16, F16, F32, F64, Case, Factory, g, last, strided
from support.rule_operands import HALVES, fixed, float32, frozen, index, n, positive, small, transposed, unit

C64, C128 = torch.complex64, torch.complex128


CASES: list[Case] = []


def case(
    name: str, body: str, dtypes: tuple[torch.dtype, ...] = (F32, F64), tolerance: float = 0, **factories: Factory
) -> None:
    CASES.append(Case(name, body, factories, dtypes, tolerance))


# ---- elementwise: two arguments ----

for op in ("+", "-", "*", "/"):
    case(f"binary {op}", f"x {op} y", HALVES, x=g(3, 4), y=positive(3, 4))
    case(f"binary {op} broadcast", f"x {op} y", x=g(2, 3, 4), y=positive(3, 1))
    case(f"binary {op} scalar", f"x {op} 2.5, 2.5 {op} x, x {op} 3", HALVES, x=positive(3, 4))
    case(f"binary {op} 0-d", f"x {op} y", x=g(), y=positive(3))
    case(f"binary {op} twice", f"x {op} x", x=positive(3, 4))
    case(f"binary {op} strided", f"x {op} y", x=strided(3, 4), y=positive(3, 4))
    case(f"binary {op} frozen", f"x {op} y", x=g(3, 4), y=frozen(positive(4)))
    case(f"binary {op} promotes", f"x {op} y", (F64, F32, BF16), x=g(3, 4), y=float32(positive(1, 4)))
case("add alpha", "torch.add(x, y, alpha=2.5), torch.sub(x, y, alpha=3)", x=g(3, 4), y=g(4))
case("rsub", "torch.rsub(x, y, alpha=2), torch.rsub(x, 1.5)", x=g(3, 4), y=g(4))
case("complex", "x * y, x / y, x - y, torch.mul(x, 2.0)", (C64, C128), x=g(3, 4), y=g(4))
case("complex unary", "x.exp(), x.tanh(), x.sin(), x.sqrt(), x.reciprocal(), x.sgn(), x.abs()", (C64, C128), x=g(3, 4))
case("complex matmul", "torch.matmul(x, y)", (C64, C128), x=g(2, 3, 4), y=g(4, 5))
case(
    "div modes",
    "torch.div(x, y, rounding_mode='floor') + torch.div(x, 0.3, rounding_mode='trunc') + x",
    x=g(3, 4),
    y=positive(4),
)
case(
    "remainder",
    "torch.remainder(x, y) + torch.fmod(x, y) + torch.remainder(x, 0.7) + torch.fmod(x, 0.7)",
    x=g(3, 4),
    y=positive(4),
)
case("addcmul", "torch.addcmul(x, y, z, value=0.5), torch.addcmul(x, y, z)", x=g(3, 4), y=g(4), z=g(3, 1))
case("addcdiv", "torch.addcdiv(x, y, z, value=0.5), torch.addcdiv(x, y, z)", x=g(3, 4), y=g(4), z=positive(3, 1))
case("lerp", "torch.lerp(x, y, z), torch.lerp(x, y, 0.3)", HALVES, x=g(3, 4), y=g(4), z=g(3, 1))
case("pow scalar", "x ** 2, x ** 3, x ** 0.5, x ** -1, x ** 0, x.square(), x.pow(2.5)", HALVES, x=positive(3, 4))
case("pow tensor", "torch.pow(x, y)", x=positive(3, 4), y=g(4))
case("pow at zero", "torch.pow(x, y)", x=fixed(0, 0, 0, 1, 2), y=fixed(0, 1, 2, 0, -1))
case("pow base", "torch.pow(2.0, x), torch.pow(0.0, y)", x=g(3, 4), y=fixed(0, 1, 2))
case("atan2", "torch.atan2(x, y), torch.hypot(x, y)", x=g(3, 4), y=g(4))
case("logaddexp", "torch.logaddexp(x, y), torch.logaddexp2(x, y)", x=g(3, 4), y=g(4))
case("xlogy", "torch.xlogy(x, y)", x=small(12), y=positive(12))
for op in ("maximum", "minimum", "fmax", "fmin", "max", "min"):
    case(op, f"torch.{op}(x, y)", HALVES, x=small(5, 6), y=small(5, 6))
    case(f"{op} broadcast", f"torch.{op}(x, y)", x=small(5, 6), y=small(6))
case("where", "torch.where(c > 2, x, y)", HALVES, c=index(5, 3, 4), x=g(3, 4), y=g(4))
case("where scalars", "torch.where(c > 2, x, 1.5), torch.where(c > 2, 0.0, x)", c=index(5, 3, 4), x=g(3, 4))
case(
    "clamp",
    "torch.clamp(x, -1, 1), x.clamp(min=0), x.clamp(max=0.5), x.clamp_min(1), x.clamp_max(1)",
    HALVES,
    x=small(5, 6),
)
case("clip nan", "torch.clamp(x, -1., 1.)", x=fixed(float("nan"), 2, 0.5, float("inf")))
case("clamp tensor", "torch.clamp_min(x, y), torch.clamp_max(x, y)", x=small(5, 6), y=small(6))

# ---- elementwise: functions ----

for op in (
    "neg",
    "exp",
    "expm1",
    "exp2",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "sigmoid",
    "abs",
    "erf",
    "erfc",
    "atan",
    "asinh",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "sgn",
    "frac",
    "positive",
    "nan_to_num",
):
    case(op, f"torch.{op}(x)", HALVES, x=g(3, 40))
for op in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"):
    case(op, f"torch.{op}(x)", HALVES if op != "digamma" else (F32, F64), x=positive(3, 40))
for op in ("asin", "acos", "atanh", "erfinv", "logit"):
    case(op, f"torch.{op}(x)", x=unit(3, 40))
case("erfcx", "torch.special.erfcx(x)", (F32, F64), x=g(3, 40))
case("unary strided", "x.exp().sin().tanh()", x=strided(5, 6))
case("unary 0-d", "x.exp().log().sqrt()", x=lambda dtype: torch.ones((), dtype=dtype, requires_grad=True))
case("logit eps", "torch.logit(x, 0.2)", x=unit(30))
case("abs at zero", "x.abs() + x.sign()", x=small(20))
case("round decimals", "torch.round(x, decimals=1) + x", x=g(5))

# ---- activations ----

for body in (
    "F.relu(x)",
    "F.relu6(x * 5)",
    "F.hardtanh(x)",
    "F.hardtanh(x, -0.5, 0.3)",
    "F.hardtanh(x, -0.1, 0.7)",
    "F.hardtanh(x, -1 / 3, 0.1)",
    "F.threshold(x, 0.1, 2.0)",
    "F.leaky_relu(x)",
    "F.leaky_relu(x, 0.3)",
    "F.elu(x)",
    "F.elu(x, 0.3)",
    "F.selu(x)",
    "F.celu(x)",
    "F.celu(x, 0.3)",
    "F.gelu(x)",
    "F.gelu(x, approximate='tanh')",
    "F.silu(x)",
    "F.mish(x)",
    "F.hardswish(x * 4)",
    "F.hardsigmoid(x * 4)",
    "F.softplus(x)",
    "F.softplus(x, 2., 1.)",
    "F.softshrink(x)",
    "F.hardshrink(x)",
    "F.glu(x)",
    "F.glu(x, 0)",
    "F.logsigmoid(x)",
    "F.softsign(x)",
    "F.tanhshrink(x)",
    "torch.relu(x) + torch.relu(x)",
):
    case(body, body, HALVES, x=g(4, 40))
    case(body + " strided", body, x=strided(4, 6))
case("prelu", "F.prelu(x, w)", HALVES, x=g(3, 4, 5), w=g(4))
case("prelu one", "F.prelu(x, w)", x=g(3, 4, 5), w=g(1))
case("prelu 1-d", "F.prelu(x, w)", x=g(5), w=g(1))
case("prelu 0-d", "F.prelu(x, w)", x=g(), w=g(1))
case("prelu frozen", "F.prelu(x, w)", x=frozen(g(3, 4)), w=g(4))

# ---- matrices ----

X = {
    "1-d": g(5),
    "2-d": g(3, 5),
    "3-d": g(2, 3, 5),
    "4-d": g(2, 2, 3, 5),
    "2-d T": transposed(3, 5),
    "3-d T": transposed(2, 3, 5),
    "3-d strided": lambda dtype: torch.randn(3, 2, 5).to(dtype).transpose(0, 1).requires_grad_(),
    "one row": g(1, 5),
    "4-d T": transposed(2, 2, 3, 5),
}
for shape, x in X.items():
    for weight, w in {"": g(4, 5), " wT": transposed(4, 5), " w1": g(1, 5)}.items():
        case(f"linear {shape}{weight}", "F.linear(x, w, b)", x=x, w=w, b=g(1) if weight == " w1" else g(4))
        case(f"linear {shape}{weight} no bias", "F.linear(x, w)", x=x, w=w)
    case(f"linear {shape} frozen w", "F.linear(x, w, b)", x=x, w=frozen(g(4, 5)), b=g(4))
    case(f"linear {shape} frozen w no bias", "F.linear(x, w)", x=x, w=frozen(g(4, 5)))
    case(f"linear {shape} frozen x", "F.linear(x, w, b)", x=frozen(x), w=g(4, 5), b=g(4))
    case(f"linear {shape} only b", "F.linear(x, w, b)", x=frozen(x), w=frozen(g(4, 5)), b=g(4))
case("linear halves", "F.linear(x, w, b)", (BF16, F16), x=g(2, 3, 8), w=g(16, 8), b=g(16))
case("linear big", "F.linear(x, w, b)", x=g(4, 33, 65), w=g(129, 65), b=g(129))
case("linear grad strided", "F.linear(x, w, b).transpose(0, 1) * 1", x=g(4, 3, 5), w=g(6, 5), b=g(6))
case("linear tied", "F.linear(F.linear(x, w), w.t())", x=g(4, 3, 5), w=g(6, 5))
for rows in ((3,), (2, 3), (2, 2, 3), (0, 3)):
    case(f"linear {rows} without results", "F.linear(x, w, b)", x=g(*rows), w=g(0, 3), b=g(0))
Y = {
    "1-d": g(5),
    "2-d": g(5, 4),
    "2-d T": transposed(5, 4),
    "3-d": g(2, 5, 4),
    "3-d one": g(1, 5, 4),
    "4-d": g(2, 2, 5, 4),
    "4-d T": transposed(2, 2, 5, 4),
    "3-d T": transposed(2, 5, 4),
    "col": g(5, 1),
}
for xname, x in {**X, "3-d one": g(1, 3, 5)}.items():
    for yname, y in Y.items():
        case(f"matmul {xname} @ {yname}", "torch.matmul(x, y)", (F32,), x=x, y=y)
        if "d T" not in xname:
            case(f"matmul {xname} @ {yname} frozen y", "x @ y", (F32,), x=x, y=frozen(y))
            case(f"matmul {xname} @ {yname} frozen x", "x @ y", (F64,), x=frozen(x), y=y)
case("mm", "torch.mm(x, y)", HALVES, x=g(3, 5), y=g(5, 4))
case("mm T", "torch.mm(x.t(), y.t())", x=g(5, 3), y=g(4, 5))
case("bmm", "torch.bmm(x, y)", HALVES, x=g(2, 3, 5), y=g(2, 5, 4))
case("bmm T", "torch.bmm(x, y)", x=transposed(2, 3, 5), y=transposed(2, 5, 4))
case("addmm", "torch.addmm(b, x, y), torch.addmm(b, x, y, beta=0.5, alpha=2)", x=g(3, 5), y=transposed(5, 4), b=g(4))
case(
    "baddbmm",
    "torch.baddbmm(b, x, y), torch.baddbmm(b, x, y, beta=0.5, alpha=2)",
    x=g(2, 3, 5),
    y=g(2, 5, 4),
    b=g(3, 1),
)
case("addbmm", "torch.addbmm(b, x, y), torch.addbmm(b, x, y, beta=0.5, alpha=2)", x=g(2, 3, 5), y=g(2, 5, 4), b=g(4))
case("mv", "torch.mv(x, y), torch.addmv(b, x, y), torch.addmv(b, x, y, beta=0.5, alpha=2)", x=g(3, 5), y=g(5), b=g(3))
case("dot", "torch.dot(x, y), torch.outer(x, y), torch.ger(x, y)", x=g(5), y=g(5))
case("addr", "torch.addr(b, x, y), torch.addr(b, x, y, beta=0.5, alpha=2)", x=g(3), y=g(5), b=g(3, 5))

# ---- contractions ----

for equation, sizes in {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "ij,jk->ki": ((3, 4), (4, 5)),
    "ij,jk": ((3, 4), (4, 5)),
    "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bqhd,bkhd->bhqk": ((2, 4, 3, 5), (2, 6, 3, 5)),
    "i,j->ij": ((3,), (4,)),
    "i,i->": ((3,), (3,)),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,kl->": ((3, 4), (2, 5)),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 6)),
    "...ij,j->i...": ((2, 3, 4), (4,)),
    "ijk,ji->k": ((3, 4, 5), (4, 3)),
    "iij,jk->ik": ((3, 3, 4), (4, 5)),
    "iji,i->j": ((3, 4, 3), (3,)),
    "ij,jk->ik, ones": ((3, 1), (1, 5)),
    "bij,bjk->ik": ((1, 3, 4), (2, 4, 5)),
    "bij,bjk->bi": ((2, 3, 1), (2, 4, 5)),
    "Zab,abZ->Za": ((2, 3, 4), (3, 4, 2)),
}.items():
    x, y = (g(*size) for size in sizes)
    text = equation.split(", ")[0]
    case(f"einsum {equation}", f"torch.einsum('{text}', x, y)", x=x, y=y)
    case(f"einsum {equation} frozen y", f"torch.einsum('{text}', x, y) * 2", x=x, y=frozen(y))
case("einsum T", "torch.einsum('bij,bjk->bik', x, y)", (F32, F64, BF16), x=transposed(2, 3, 4), y=transposed(2, 4, 5))
case("einsum complex", "torch.einsum('bij,bjk->ik', x, y)", (C64, C128), x=g(2, 3, 4), y=g(2, 4, 5))
case("einsum one", "torch.einsum('ijj->i', x), torch.einsum('ij->ji', y) * 2", x=g(3, 4, 4), y=g(3, 4))
case("einsum sums", "torch.einsum('ijk->j', x), torch.einsum('...k->k', x)", x=g(3, 4, 5))
case("einsum three", "torch.einsum('ij,jk,kl->il', x, y, z)", x=g(3, 4), y=g(4, 5), z=g(5, 2))
case("einsum three mixed", "torch.einsum('bi,bj,ijk->bk', x, y, z)", x=g(3, 4), y=g(3, 5), z=g(4, 5, 2))
case("einsum four", "torch.einsum('ij,kj,kl,li->', x, y, z, w)", x=g(3, 4), y=g(5, 4), z=g(5, 2), w=g(2, 3))
case(
    "einsum path",
    "torch.ops.aten.einsum('ij,jk,kl->il', [x, y, z], path=[1, 2, 0, 1])",
    x=g(3, 4),
    y=g(4, 5),
    z=g(5, 2),
)
case("einsum itself", "torch.einsum('ij,kj->ik', x, x)", x=g(3, 4))
case("tensordot", "torch.tensordot(x, y, dims=([1], [0])), torch.tensordot(x, y.t(), dims=1)", x=g(3, 4), y=g(4, 4))
case("tensordot two", "torch.tensordot(x, y, dims=([0, -1], [1, 0]))", x=g(3, 4, 5), y=g(5, 3, 2))
case(
    "tensordot all",
    "torch.tensordot(x, y, dims=2), torch.tensordot(x, z, dims=([0, 1], [1, 0]))",
    x=g(3, 4),
    y=g(3, 4),
    z=g(4, 3),
)
case(
    "tensordot all complex",
    "torch.tensordot(x, y, dims=2), torch.tensordot(x, z, dims=([0, 1], [1, 0]))",
    (C64, C128),
    x=g(3, 4),
    y=g(3, 4),
    z=g(4, 3),
)
case("tensordot none", "torch.tensordot(x, y, dims=0)", x=g(3, 4), y=g(2))
case("tensordot ones", "torch.tensordot(x, y, dims=([1, 2], [0, 1]))", x=g(3, 1, 5), y=g(4, 1, 2))
case("tensordot T", "torch.tensordot(x, y, dims=([1, 2], [0, 1]))", x=transposed(3, 4, 5), y=transposed(4, 5, 2))
case("tensordot frozen", "torch.tensordot(x, y, dims=([1], [0]))", x=g(3, 4), y=frozen(g(4, 5)))
case("matrix_power", "torch.matrix_power(x, 2), torch.linalg.matrix_power(y, 3)", x=g(2, 3, 3), y=g(4, 4))
case("matrix_power of bits", "torch.matrix_power(x, 5), torch.linalg.matrix_power(x, 6)", (F64,), x=g(2, 3, 3))
case("bilinear", "F.bilinear(x, y, w, b)", x=g(3, 4), y=g(3, 5), w=g(2, 4, 5), b=g(2))
case("bilinear 3-d", "F.bilinear(x, y, w)", x=g(3, 2, 4), y=g(3, 2, 5), w=g(2, 4, 5))
case("bilinear 1-d", "F.bilinear(x, y, w, b)", x=g(4), y=g(5), w=g(1, 4, 5), b=g(1))
case("bilinear frozen", "F.bilinear(x, y, w, b)", x=g(3, 4), y=frozen(g(3, 5)), w=frozen(g(2, 4, 5)), b=g(2))

# ---- recurrent cells ----

# Vectors of 8 or 16 numbers leave a rest of 13 that is rounded otherwise, in each row or at the end of all rows.
for size in (5, 13):
    for cell, gates, hidden in (("rnn_tanh", 1, "h"), ("rnn_relu", 1, "h"), ("gru", 3, "h"), ("lstm", 4, "[h, c]")):
        weights: Any = {"w": g(gates * size, 4), "u": g(gates * size, size)}
        biases: Any = {"a": g(gates * size), "b": g(gates * size)}
        states: Any = {"h": g(6, size), **({"c": g(6, size)} if cell == "lstm" else {})}
        name, call = f"{cell}_cell {size}", f"torch.{cell}_cell(x, {hidden}, w, u"
        case(name, f"{call}, a, b)", HALVES, x=g(6, 4), **states, **weights, **biases)
        case(f"{name} plain", f"{call})", HALVES, x=g(6, 4), **states, **weights)
        case(f"{name} frozen x", f"{call}, a, b)", x=n(6, 4), **states, **weights, **biases)

# ---- recurrent networks ----


def network(gates: int, layers: int, directions: int, biases: bool = True, size: int = 5) -> Any:
    """The weights of a network, in the order in which its operator takes them."""
    weights: dict[str, Factory] = {}
    for i in range(layers * directions):
        inputs = 4 if i < directions else size * directions
        weights[f"w{i}"], weights[f"u{i}"] = g(gates * size, inputs), g(gates * size, size)
        if biases:
            weights[f"a{i}"], weights[f"b{i}"] = g(gates * size), g(gates * size)
    return weights


for op, gates in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)):
    # Layers, directions, whether there are biases, dropout, whether the batch is the first dimension.
    for name, (layers, directions, biased, dropout, first) in {
        "": (1, 1, True, 0.0, False),
        " plain": (1, 1, False, 0.0, False),
        " batch first": (2, 1, True, 0.0, True),
        " plain batch first": (1, 2, False, 0.0, True),
        " both directions": (2, 2, True, 0.0, False),
        " dropout": (3, 1, True, 0.4, False),
    }.items():
        given = network(gates, layers, directions, biased)
        before: Any = {"h": g(layers * directions, 3, 5)}
        if op == "lstm":
            before["c"] = g(layers * directions, 3, 5)
        hidden = "[h, c]" if op == "lstm" else "h"
        body = (
            f"torch.{op}(x, {hidden}, [{', '.join(given)}], {biased}, {layers}, {dropout}, True, "
            f"{directions == 2}, {first})"
        )
        sequence = g(3, 6, 4) if first else g(6, 3, 4)
        case(f"{op}{name}", body, (F32, F64, BF16), x=sequence, **before, **given)
        if name == "":
            still: Any = {key: frozen(factory) for key, factory in before.items()}
            case(f"{op} frozen x", body, x=n(6, 3, 4), **still, **given)
            case(f"{op} one step", body, x=g(1, 3, 4), **before, **given)
            fixed_weights: Any = {key: frozen(factory) for key, factory in given.items()}
            case(f"{op} frozen weights", body, x=sequence, **before, **fixed_weights)
            case(f"{op} only output", f"{body}[0][2:4]", x=sequence, **before, **given)
            case(f"{op} only state", f"{body}[1]", x=sequence, **before, **given)
PROJECTED = "torch.lstm(x, [h, c], [w, u, a, b, p], True, 1, 0.0, True, False, False)"
case("lstm projected", PROJECTED, (F32, F64, BF16), x=g(6, 3, 4), h=g(1, 3, 2), c=g(1, 3, 5), w=g(20, 4), u=g(20, 2),
     a=g(20), b=g(20), p=g(2, 5))  # fmt: skip
case("lstm projected plain", "torch.lstm(x, [h, c], [w, u, p], False, 1, 0.0, True, False, True)", x=g(3, 6, 4),
     h=g(1, 3, 2), c=g(1, 3, 5), w=g(20, 4), u=g(20, 2), p=g(2, 5))  # fmt: skip

# ---- convolutions ----

case("conv1d", "F.conv1d(x, w, b)", x=g(2, 4, 9), w=g(6, 4, 3), b=g(6))
case("conv2d", "F.conv2d(x, w, b)", (F32, F64, BF16), x=g(2, 4, 9, 8), w=g(6, 4, 3, 3), b=g(6))
case("conv2d no bias", "F.conv2d(x, w, stride=2, padding=1)", x=g(2, 4, 9, 8), w=g(6, 4, 3, 3))
case("conv2d 1x1", "F.conv2d(x, w, stride=2)", x=g(2, 4, 9, 8), w=g(6, 4, 1, 1))
case("conv2d one", "F.conv2d(x, w)", x=g(1, 4, 5, 5), w=g(6, 4, 3, 3))
case("conv2d depthwise", "F.conv2d(x, w, b, 1, [1, 2], [2, 1], 4)", x=g(2, 4, 9, 8), w=g(8, 1, 3, 3), b=g(8))
case("conv2d last", "F.conv2d(x, w, b, padding=1)", x=last(2, 4, 9, 8), w=g(6, 4, 3, 3), b=g(6))
case("conv2d strided", "F.conv2d(x, w)", x=strided(2, 4, 9, 8), w=g(6, 4, 3, 3))
case("conv2d frozen w", "F.conv2d(x, w, b)", x=g(2, 4, 9, 8), w=frozen(g(6, 4, 3, 3)), b=g(6))
case("conv2d frozen x", "F.conv2d(x, w, b)", x=n(2, 4, 9, 8), w=g(6, 4, 3, 3), b=g(6))
case("conv2d unbatched", "F.conv2d(x, w, b)", x=g(4, 9, 8), w=g(6, 4, 3, 3), b=g(6))
case("conv1d unbatched", "F.conv1d(x, w, b)", x=g(4, 9), w=g(6, 4, 3), b=g(6))
case("conv3d", "F.conv3d(x, w, b, padding=1)", x=g(2, 3, 5, 6, 4), w=g(4, 3, 3, 3, 3), b=g(4))
case("conv2d same", "F.conv2d(x, w, b, padding='same')", x=g(2, 4, 9, 8), w=g(6, 4, 3, 3), b=g(6))
case("conv2d same even", "F.conv2d(x, w, b, padding='same')", x=g(2, 4, 9, 8), w=g(6, 4, 2, 4), b=g(6))
case("conv2d valid", "F.conv2d(x, w, b, padding='valid')", x=g(4, 9, 8), w=g(6, 4, 2, 4), b=g(6))
case("conv1d same", "F.conv1d(x, w, b, padding='same', dilation=2)", x=g(4, 9), w=g(6, 4, 4), b=g(6))
case("conv3d same", "F.conv3d(x, w, padding='same')", x=g(1, 2, 5, 4, 6), w=g(3, 2, 2, 3, 3))
case(
    "conv2d groups last",
    "F.conv2d(x, w, b, padding=1, groups=2)",
    (F32, F64, BF16, F16),
    x=last(2, 4, 9, 8),
    w=g(6, 2, 3, 3),
    b=g(6),
)
case("conv3d dilated", "F.conv3d(x, w, b, 1, 2, 2)", (F32, F64, BF16), x=g(2, 3, 5, 6, 4), w=g(4, 3, 3, 3, 3), b=g(4))
case("conv2d no weight", "F.conv2d(x * 2, w, b, 2)", x=g(2, 4, 9, 8), w=frozen(g(6, 4, 3, 3)), b=frozen(g(6)))
case("conv2d itself", "F.conv2d(x, x, padding=1)", x=g(4, 4, 3, 3))
case(
    "conv_transpose2d last", "F.conv_transpose2d(x, w, b, 2)", (F32, BF16), x=last(2, 4, 5, 6), w=g(4, 3, 3, 3), b=g(3)
)
case("conv_transpose1d", "F.conv_transpose1d(x, w, b, 2)", x=g(2, 4, 9), w=g(4, 6, 3), b=g(6))
case("conv_transpose2d", "F.conv_transpose2d(x, w, b, 2, 1, 1, 2)", x=g(2, 4, 5, 6), w=g(4, 3, 3, 3), b=g(6))
case("conv_transpose2d unbatched", "F.conv_transpose2d(x, w, b)", x=g(4, 5, 6), w=g(4, 3, 3, 3), b=g(3))
case("conv_transpose3d", "F.conv_transpose3d(x, w, b)", x=g(2, 4, 3, 4, 3), w=g(4, 3, 2, 2, 2), b=g(3))
case("convolution", "torch.convolution(x, w, b, [1], [0], [1], False, [0], 1)", x=g(2, 4, 9), w=g(6, 4, 3), b=g(6))
case("conv2d complex", "F.conv2d(x, w, b, padding=1)", (C64, C128), x=g(2, 3, 5, 4), w=g(4, 3, 3, 3), b=g(4))
case(
    "conv_transpose2d complex", "F.conv_transpose2d(x, w, b, 2)", (C64, C128), x=g(2, 4, 5, 6), w=g(4, 3, 3, 3), b=g(3)
)
case("conv1d complex unbatched", "F.conv1d(x, w)", (C64, C128), x=g(3, 5), w=g(4, 3, 3))
case(
    "complex factors",
    "torch.add(x, y, alpha=2 + 3j), torch.baddbmm(x, x, y, beta=1 + 2j, alpha=2 + 3j)",
    (C64, C128),
    x=g(2, 3, 3),
    y=g(2, 3, 3),
)
case("batch_norm of nothing", "F.batch_norm(x, None, None, w, b, True)", x=g(0, 5, 9), w=g(5), b=g(5))

# ---- normalizations ----

case("layer_norm", "F.layer_norm(x, [6], w, b)", HALVES, x=g(4, 5, 6), w=g(6), b=g(6))
case("layer_norm 2", "F.layer_norm(x, [5, 6], w, b, 1e-3)", x=g(4, 5, 6), w=g(5, 6), b=g(5, 6))
case("layer_norm plain", "F.layer_norm(x, [6])", x=g(4, 5, 6))
case("layer_norm strided", "F.layer_norm(x, [6], w)", x=strided(4, 6), w=g(6))
case("layer_norm frozen", "F.layer_norm(x, [6], w, b)", x=n(4, 6), w=g(6), b=g(6))
case("layer_norm frozen w", "F.layer_norm(x, [6], w, b)", x=g(4, 6), w=n(6), b=g(6))
case(
    "batch_norm",
    "F.batch_norm(x, m, v, w, b, True)",
    (F32, F64, BF16),
    x=g(4, 3, 5, 5),
    w=g(3),
    b=g(3),
    m=n(3),
    v=frozen(positive(3)),
)
case("batch_norm eval", "F.batch_norm(x, m, v, w, b)", x=g(4, 3, 5, 5), w=g(3), b=g(3), m=n(3), v=frozen(positive(3)))
case("batch_norm plain", "F.batch_norm(x, None, None, training=True)", x=g(4, 3))
case("batch_norm last", "F.batch_norm(x, None, None, w, b, True)", x=last(4, 3, 5, 5), w=g(3), b=g(3))
case("batch_norm frozen x", "F.batch_norm(x, None, None, w, b, True)", x=n(4, 3, 5), w=g(3), b=g(3))
case("group_norm", "F.group_norm(x, 2, w, b)", HALVES, x=g(4, 6, 5, 5), w=g(6), b=g(6))
case("group_norm plain", "F.group_norm(x, 3)", x=g(4, 6))
case("group_norm last", "F.group_norm(x, 2, w, b)", x=last(4, 6, 5, 5), w=g(6), b=g(6))
case("group_norm frozen", "F.group_norm(x, 2, w, b)", x=n(4, 6, 5), w=g(6), b=g(6))
case("group_norm strided", "F.group_norm(x, 2, w, b)", x=strided(4, 6, 5), w=g(6), b=g(6))

case("rms_norm", "F.rms_norm(x, [6], w)", HALVES, x=g(4, 5, 6), w=g(6))
case("rms_norm 2", "F.rms_norm(x, [5, 6], w, 1e-3)", HALVES, x=g(4, 5, 6), w=g(5, 6))
case("rms_norm plain", "F.rms_norm(x, [6])", x=g(4, 5, 6))
case("rms_norm strided", "F.rms_norm(x, [6], w)", x=strided(4, 5, 6), w=g(6))
case("rms_norm last", "F.rms_norm(x, [5], w)", x=last(4, 3, 6, 5), w=g(5))
case("rms_norm frozen", "F.rms_norm(x, [6], w), F.rms_norm(y, [6], w.detach())", x=n(4, 6), y=g(4, 6), w=g(6))
case("rms_norm promotes", "F.rms_norm(x, [6], w)", (BF16,), x=g(4, 6), w=float32(g(6)))
case("instance_norm", "F.instance_norm(x, None, None, w, b)", HALVES, x=g(4, 3, 5, 5), w=g(3), b=g(3))
case("instance_norm plain", "F.instance_norm(x)", x=g(4, 3, 5))
case("instance_norm last", "F.instance_norm(x, None, None, w, b)", x=last(4, 3, 5, 5), w=g(3), b=g(3))
case("instance_norm strided", "F.instance_norm(x, None, None, w, b)", x=strided(4, 3, 5, 2, 3), w=g(3), b=g(3))
case("instance_norm frozen x", "F.instance_norm(x, None, None, w, b)", x=n(4, 3, 5), w=g(3), b=g(3))
case("instance_norm frozen w", "F.instance_norm(x, None, None, w, b)", x=g(4, 3, 5), w=n(3), b=g(3))
case("instance_norm one", "F.instance_norm(x * 2, None, None, w, b).relu()", x=g(1, 3, 5, 5), w=g(3), b=g(3))
for statistics in ("True, 0.2", "False"):
    case(
        f"instance_norm statistics {statistics}",
        f"F.instance_norm(x, m, v, w, b, {statistics})",
        x=g(3, 4, 5, 5),
        w=g(4),
        b=g(4),
        m=n(4),
        v=frozen(positive(4)),
    )

# ---- dropout ----

for masked in ((3,), (7, 33), (64, 1025), (2, 3, 5, 7), ()):
    case(f"dropout {masked}", "F.dropout(x, 0.3) + x", HALVES, x=g(*masked))
case("dropout strided", "F.dropout(x, 0.3)", HALVES, x=strided(64, 33))
case("dropout last", "F.dropout(x, 0.3)", x=last(2, 4, 16, 16))
case("dropout strided grad", "F.dropout(x, 0.3).transpose(0, 1).contiguous()", x=g(64, 33))
case("dropout gaps", "F.dropout(x[:, ::2], 0.3)", x=g(64, 33))
case("dropout expanded", "F.dropout(x.expand(8, 33), 0.3)", x=g(33))
case("dropout 1", "F.dropout(x, 1.0)", x=g(64, 33))
case("dropout twice", "F.dropout(x, 0.5) * F.dropout(x, 0.5)", x=g(64, 33))
case("dropout empty", "F.dropout(x, 0.5)", x=g(0, 3))
case("dropout special", "F.dropout(x * 0 - 1e-45, 0.5)", x=g(64))
case("dropout rescale", "F.dropout(x, 0.1) + F.dropout(x, 0.7)", HALVES, x=g(333))

for function in ("feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
    for extent in ((7, 33), (4, 6, 5), (2, 3, 4, 5)):
        case(f"{function} {len(extent)}-d", f"torch.{function}(x, 0.3, True) + x", HALVES, x=g(*extent))
    case(f"{function} strided", f"torch.{function}(x, 0.3, True)", HALVES, x=strided(16, 8, 3))
    case(f"{function} last", f"torch.{function}(x, 0.3, True)", x=last(2, 4, 6, 5))
    case(f"{function} 1", f"torch.{function}(x, 1.0, True)", x=g(4, 3, 2))
    case(f"{function} 0", f"torch.{function}(x, 0.0, True) * x", x=g(4, 3, 2))
    case(f"{function} twice", f"torch.{function}(x, 0.5, True) * torch.{function}(x, 0.7, True)", x=g(64, 3, 2))
    case(f"{function} empty", f"torch.{function}(x, 0.5, True) + x", x=g(2, 3, 0))
    case(f"{function} probability", f"torch.{function}(x, p.item(), True)", p=lambda _: torch.tensor(0.25), x=g(9, 5))
case("dropout2d", "F.dropout2d(x, 0.4)", x=g(3, 4, 5, 5))
case("dropout3d", "F.dropout3d(x, 0.4)", x=g(3, 4, 2, 3, 2))

# ---- embedding ----

case("embedding sparse", "F.embedding(i, w, sparse=True).sum() + w.sum()", i=index(10, 3, 4), w=g(10, 6))
case("embedding", "F.embedding(i, w)", HALVES, i=index(10, 3, 4), w=g(10, 6))
case("embedding padding", "F.embedding(i, w, padding_idx=2)", i=index(10, 3, 40), w=g(10, 6))
case("embedding negative padding", "F.embedding(i, w, padding_idx=-1)", i=index(10, 3, 40), w=g(10, 6))
case("embedding freq", "F.embedding(i, w, scale_grad_by_freq=True)", i=index(10, 3, 40), w=g(10, 6))
case("embedding 0-d", "F.embedding(i, w)", i=index(10), w=g(10, 6))
case("embedding tied", "F.linear(F.embedding(i, w), w)", i=index(10, 3, 40), w=g(10, 6))

for mode in ("sum", "mean", "max"):
    case(f"embedding_bag {mode}", f"F.embedding_bag(i, w, mode='{mode}')", i=index(10, 3, 7), w=g(10, 6))
    case(
        f"embedding_bag {mode} offsets",
        f"F.embedding_bag(i, w, o, mode='{mode}', padding_idx=2)",
        i=index(10, 9),
        o=lambda _: torch.tensor([0, 2, 2, 7]),
        w=g(10, 6),
    )
case(
    "embedding_bag weights",
    "F.embedding_bag(i, w, per_sample_weights=s, mode='sum')",
    i=index(10, 3, 7),
    w=g(10, 6),
    s=g(3, 7),
)
case(
    "embedding_bag last offset",
    "F.embedding_bag(i, w, o, mode='sum', include_last_offset=True, padding_idx=-1)",
    i=index(10, 9),
    o=lambda _: torch.tensor([0, 4, 9]),
    w=g(10, 6),
)
case("embedding_bag freq", "F.embedding_bag(i, w, scale_grad_by_freq=True)", i=index(4, 3, 7), w=g(10, 6))
case("embedding_bag sparse", "F.embedding_bag(i, w, sparse=True).sum() + w.sum()", i=index(10, 3, 4), w=g(10, 6))
case(
    "embedding_bag all",
    "torch.embedding_bag(w, i, o)[0]",
    i=index(10, 9),
    o=lambda _: torch.tensor([0, 4]),
    w=g(10, 6),
)

# ---- distances ----

case("cosine_similarity", "F.cosine_similarity(x, y)", HALVES, x=g(3, 4), y=g(3, 4))
case("cosine_similarity 0", "F.cosine_similarity(x, y, 0, 1e-3)", x=g(3, 4), y=g(3, 4))
case("cosine_similarity broadcast", "F.cosine_similarity(x, y, -1)", x=g(3, 1, 4), y=g(2, 4))
case("cosine_similarity small", "F.cosine_similarity(x * 0.1, y, 1, 5.0)", x=g(3, 4), y=g(3, 4))
case("cosine_similarity itself", "F.cosine_similarity(x, x, 0)", tolerance=1e-6, x=g(3, 4))
case("cosine_similarity promotes", "F.cosine_similarity(x, y)", x=g(3, 4), y=float32(g(3, 4)))
case("pairwise_distance", "F.pairwise_distance(x, y), F.pairwise_distance(x, y, 1.0)", x=g(3, 4), y=g(3, 4))
case("pairwise_distance broadcast", "F.pairwise_distance(x, y, 3.0, keepdim=True)", x=g(3, 4), y=g(4))
case("pairwise_distance inf", "F.pairwise_distance(x, y, float('inf'), 0.0)", x=g(2, 3, 4), y=n(3, 4))
case("cdist", "torch.cdist(x, y), torch.cdist(x, y, 1.0), torch.cdist(y, x, 3.0)", x=g(5, 4), y=g(3, 4))
case("cdist inf", "torch.cdist(x, y, float('inf')), torch.cdist(y, x, 0.0).sum() + y.sum()", x=g(5, 4), y=g(3, 4))
case("cdist by product", "torch.cdist(x, y), torch.cdist(y, x)", x=g(30, 4), y=g(3, 4))
case(
    "cdist modes",
    "torch.cdist(x, y, compute_mode='use_mm_for_euclid_dist'), "
    "torch.cdist(y, x, compute_mode='donot_use_mm_for_euclid_dist')",
    x=g(2, 30, 4),
    y=g(2, 3, 4),
)
case("cdist broadcast", "torch.cdist(x, y), torch.cdist(y, x)", x=g(3, 1, 30, 4), y=g(2, 5, 4))
case("cdist one batch", "torch.cdist(x, y)", x=g(1, 30, 4), y=g(5, 4))
case("cdist strided", "torch.cdist(x, y)", x=strided(30, 4), y=transposed(3, 4))
case("cdist frozen", "torch.cdist(x, y), torch.cdist(y, x, 1.0)", x=g(30, 4), y=frozen(g(3, 4)))
case("cdist itself", "torch.cdist(x, x), torch.cdist(y, y)", x=g(30, 4), y=g(2, 30, 4))
case("cdist empty", "torch.cdist(x, y), torch.cdist(y, x)", x=g(0, 4), y=g(3, 4))
