"""The entries that need not pass, each with the reason. A run fails if one of them begins to pass."""

from dataclasses import dataclass

from .compare import DIFFERS, NOT_TRACED, RANDOM, TRACE_DIFFERS


@dataclass(frozen=True)
class KnownException:
    result: str  # the result that is allowed, one of those in compare.py
    reason: str


_CHUNKED = KnownException(
    TRACE_DIFFERS,
    "an autograd.Function written in Python computes the gradient, but a trace records only its forward",
)
_UNINITIALIZED = KnownException(
    RANDOM,
    "with driver gelsy, LAPACK receives uninitialized pivots, so that eager's result depends on the content of memory",
)

EXCEPTIONS: dict[str, KnownException] = {
    "gradient": KnownException(
        NOT_TRACED,
        "neither a trace nor TorchScript accepts spacing as a list of numbers, whose type in the schema is Scalar[]",
    ),
    "nn.functional.linear_cross_entropy.chunked": _CHUNKED,
    "nn.functional.linear_cross_entropy.chunked_none": _CHUNKED,
    "nn.LinearCrossEntropyLoss (train)": _CHUNKED,
    "nn.LinearCrossEntropyLoss (eval)": _CHUNKED,
    "linalg.lstsq": _UNINITIALIZED,
    "linalg.lstsq.grad_oriented": _UNINITIALIZED,
}

# The exceptions that hold for bfloat16 and half, types that LAPACK does not have.
REDUCED_EXCEPTIONS: dict[str, KnownException] = {
    name: exception for name, exception in EXCEPTIONS.items() if exception is not _UNINITIALIZED
}

# The exceptions that hold for float32 samples under autocast.
AUTOCAST_EXCEPTIONS: dict[str, KnownException] = {**EXCEPTIONS}

_PHASE = KnownException(
    DIFFERS,
    "vectors are determined up to a phase only, and PyTorch checks that their gradients do not depend on it. A second "
    "derivative is the sum of two terms, of the region and of its gradient, whose sum alone eager checks",
)

# The other exceptions of the first list have second derivatives that equal those of eager.
SECOND_ORDER_EXCEPTIONS: dict[str, KnownException] = {
    **{name: EXCEPTIONS[name] for name in (
        "gradient", "nn.functional.linear_cross_entropy.chunked", "nn.functional.linear_cross_entropy.chunked_none",
    )},
    "linalg.eig": _PHASE,
    "pca_lowrank": _PHASE,
    "svd_lowrank": _PHASE,
}  # fmt: skip

_END_OF_SLICE = KnownException(
    DIFFERS,
    "ATen's vector code gives another gradient for NaN (logit's: for a zero) than the code for the last elements of a "
    "tensor, and each slice has its own last elements",
)

# The exceptions where operators run slice by slice.
SLICES_EXCEPTIONS: dict[str, KnownException] = {
    **EXCEPTIONS,
    **{
        f"bounds of {name}": _END_OF_SLICE
        for name in (
            "hardtanh(-1, 1)", "hardtanh(-0.5, 0.7)", "hardtanh(-0.1, 0.1)", "hardtanh(-0.3, 0.3)",
            "hardtanh(-0.333, 0.7)", "hardtanh(0.1, 0.7)", "hardtanh_", "relu6", "relu6_", "hardshrink", "softshrink",
            "elu", "selu", "celu", "logit",
        )
    },
}  # fmt: skip

# The exceptions where gradcheck and gradgradcheck judge, by the order of the derivatives.
NUMERICAL_EXCEPTIONS: dict[int, dict[str, KnownException]] = {
    1: {"gradient": EXCEPTIONS["gradient"]},
    2: {
        "gradient": EXCEPTIONS["gradient"],
        **dict.fromkeys(("linalg.eig", "linalg.eigh", "pca_lowrank", "svd_lowrank"), _PHASE),
    },
}

# The exceptions on a GPU.
CUDA_EXCEPTIONS: dict[str, KnownException] = {
    **{name: each for name, each in EXCEPTIONS.items() if not name.startswith("linalg.lstsq")},
    "torch.ops.aten._efficient_attention_forward": KnownException(
        NOT_TRACED, "Python has no function for this operator that torch.jit.trace could record"
    ),
}
