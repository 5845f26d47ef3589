"""Cases of test_rules.py: losses."""

import torch

from support.rule_cases_tensors import BF16, F16, F32, F64, Case, Factory, g, strided
from support.rule_operands import HALVES, frozen, index, small, unit

CASES: list[Case] = []


def case(
    name: str, body: str, dtypes: tuple[torch.dtype, ...] = (F32, F64), tolerance: float = 0, **factories: Factory
) -> None:
    CASES.append(Case(name, body, factories, dtypes, tolerance))


# ---- losses ----

REDUCTIONS = ("none", "mean", "sum")
# Sizes of predictions and targets: for one sample, for a batch, and with up to three further dimensions.
TARGETS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((4, 5), (4,)),
    ((5,), ()),
    ((4, 5, 6), (4, 6)),
    ((4, 5, 6, 2), (4, 6, 2)),
    ((2, 5, 2, 3, 2), (2, 2, 3, 2)),
]
for r in REDUCTIONS:
    for loss in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        case(f"{loss} {r}", f"F.{loss}(x, y, reduction='{r}')", HALVES, x=g(3, 4), y=g(3, 4))
    case(f"smooth_l1 beta {r}", f"F.smooth_l1_loss(x, y, reduction='{r}', beta=0.3)", x=g(3, 4), y=frozen(g(3, 4)))
    case(f"huber delta {r}", f"F.huber_loss(x, y, reduction='{r}', delta=0.3)", x=g(3, 4), y=frozen(g(3, 4)))
    case(f"bce {r}", f"F.binary_cross_entropy(x, y, reduction='{r}')", x=unit(3, 4), y=unit(3, 4))
    case(
        f"bce weight {r}",
        f"F.binary_cross_entropy(x, y, w, reduction='{r}')",
        x=unit(3, 4),
        y=unit(3, 4),
        w=frozen(unit(4)),
    )
    case(
        f"bce logits {r}", f"F.binary_cross_entropy_with_logits(x, y, reduction='{r}')", HALVES, x=g(3, 4), y=unit(3, 4)
    )
    case(
        f"bce logits weights {r}",
        f"F.binary_cross_entropy_with_logits(x, y, w, reduction='{r}', pos_weight=p)",
        x=g(3, 4),
        y=unit(3, 4),
        w=frozen(unit(4)),
        p=frozen(unit(4)),
    )
    case(f"soft_margin {r}", f"F.soft_margin_loss(x, y, reduction='{r}')", x=g(3, 4), y=frozen(small(3, 4)))
    case(f"kl_div {r}", f"F.kl_div(x, y, reduction='{r}')", x=g(3, 4), y=unit(3, 4))
    case(f"kl_div log {r}", f"F.kl_div(x, y, reduction='{r}', log_target=True)", x=g(3, 4), y=g(3, 4))
    for predicted, wanted in TARGETS:
        case(
            f"nll {len(predicted)} {r}",
            f"F.nll_loss(x, t, reduction='{r}')",
            (F32, F64),
            x=g(*predicted),
            t=index(5, *wanted),
        )
        case(
            f"nll {len(predicted)} weight {r}",
            f"F.nll_loss(x, t, w, reduction='{r}', ignore_index=1)",
            (F32, F64),
            x=g(*predicted),
            t=index(5, *wanted),
            w=frozen(unit(5)),
        )
        for keywords in (
            "",
            ", weight=w",
            ", ignore_index=1",
            ", label_smoothing=0.1",
            ", weight=w, ignore_index=1, label_smoothing=0.1",
        ):
            case(
                f"cross_entropy {len(predicted)} {r}{keywords}",
                f"F.cross_entropy(x, t, reduction='{r}'{keywords})",
                (F32, F64),
                x=g(*predicted),
                t=index(5, *wanted),
                w=frozen(unit(5)),
            )
        for keywords in ("", ", weight=w", ", label_smoothing=0.1", ", weight=w, label_smoothing=0.1"):
            case(
                f"cross_entropy p {len(predicted)} {r}{keywords}",
                f"F.cross_entropy(x, t, reduction='{r}'{keywords})",
                (F32, F64),
                x=g(*predicted),
                t=unit(*predicted),
                w=frozen(unit(5)),
            )
case("kl_div broadcast", "F.kl_div(x, y)", tolerance=1e-6, x=g(3, 4), y=unit(4))
case("l1_loss broadcast", "F.l1_loss(x, y)", x=g(3, 4), y=unit(4))
case("cross_entropy p w", "F.cross_entropy(x, t, weight=w)", x=g(4, 5), t=unit(4, 5), w=unit(5))
case("cross_entropy bf16", "F.cross_entropy(x, t)", (BF16, F16), x=g(4, 5), t=index(5, 4))
case("cross_entropy strided", "F.cross_entropy(x, t)", x=strided(4, 5), t=index(5, 4))
