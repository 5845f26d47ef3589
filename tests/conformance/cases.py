"""Collects the entries of PyTorch's lists of operators and modules, with all of their sample inputs."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from . import bounds
from .script import scripted_call

DTYPES = (torch.float64, torch.float32, torch.complex128)
REDUCED_DTYPES = (torch.bfloat16, torch.float16)
SEED = 11

# PyTorch's list sets the seed of random operators inside of the call, which no trace records. Here the caller sets it.
common_methods_invocations.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)


@dataclass
class Sample:
    """One call: a module and the tensors that it is called with."""

    description: str
    module: nn.Module
    tensors: list[Tensor]
    process: Callable[[Any], Any] | None = None  # maps the results to what is differentiated
    script: Callable[[], torch.jit.ScriptModule] | None = None  # makes a scripted module if tracing fails
    nondeterminism: float = 0.0  # by how much eager's gradients may differ from themselves


@dataclass
class Entry:
    """One line of the table: all samples of one operator or module."""

    name: str
    samples: Callable[[torch.dtype], Iterator[Sample]]
    dtypes: tuple[torch.dtype, ...]
    twice: bool = True  # whether its gradient can be differentiated
    is_of_bounds: bool = False  # an operator whose derivative is not continuous, at such arguments


class Call(nn.Module):
    """Calls ``operator(*args, **kwargs)``; the tensors among the arguments are the inputs of the module.

    Inputs that require grad are copied first, and results last. So views remain inside of a region, where a rule has
    to differentiate them.
    """

    def __init__(self, operator: Callable[..., Any], arguments: Any):
        super().__init__()
        self.operator = operator
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = list(self.constants)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor.clone() if tensor.requires_grad else tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        results = pytree.tree_leaves(self.operator(*args, **kwargs))
        return tuple(r.clone() if r.requires_grad else r for r in results if isinstance(r, Tensor))


def _tensors_of(arguments: Any) -> list[Tensor]:
    """Returns the tensors among the arguments, each as a leaf of autograd's graph."""
    leaves = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    return [leaf.detach().requires_grad_(leaf.requires_grad) for leaf in leaves]


def _operator_samples(
    info: Any, operator: Callable[..., Any], numerical: bool, device: str, dtype: torch.dtype
) -> Iterator[Sample]:
    torch.manual_seed(SEED)
    if numerical:
        operator = partial(info.gradcheck_wrapper, operator)  # a function of symmetric matrices, for example
    for sample in info.sample_inputs(device, dtype, requires_grad=True):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        tensors = _tensors_of(arguments)
        if any(tensor.requires_grad for tensor in tensors):
            yield Sample(
                _describe(arguments),
                Call(operator, arguments),
                tensors,
                sample.output_process_fn_grad,
                partial(_script, info.name, info.op, arguments),
                info.gradcheck_nondet_tol,
            )


def _script(name: str, operator: Callable[..., Any], arguments: Any) -> torch.jit.ScriptModule:
    args, kwargs = arguments
    return scripted_call(name, arguments, operator(*args, **kwargs))


def _describe(arguments: Any) -> str:
    def text(leaf: Any) -> str:
        if not isinstance(leaf, Tensor):
            return repr(leaf)
        strides = "" if leaf.layout != torch.strided or leaf.is_contiguous() else f" strides {list(leaf.stride())}"
        grad = " grad" if leaf.requires_grad else ""
        return f"{str(leaf.dtype)[6:]}{list(leaf.shape)}{strides}{grad}"

    args, kwargs = pytree.tree_map(text, arguments)
    return ", ".join([str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]).replace("'", "")


class _CopyFirst(nn.Module):
    """Calls a module with copies of its inputs, for the same reason as ``Call``."""

    def __init__(self, module: nn.Module, arguments: Any):
        super().__init__()
        self.module = module
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    forward = Call.forward

    def operator(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def _module_samples(info: Any, training: bool, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    torch.manual_seed(SEED)
    inputs = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
    for sample in inputs:
        construct, call = sample.constructor_input, sample.forward_input
        if call is None:
            continue
        torch.manual_seed(SEED)
        module = info.module_cls(*construct.args, **construct.kwargs).to(device, dtype)
        arguments = (tuple(call.args), dict(call.kwargs))
        tensors = _tensors_of(arguments)
        if info.is_lazy:
            with torch.no_grad():
                module(*copy.deepcopy(arguments[0]), **copy.deepcopy(arguments[1]))
        module.train(training)
        differentiable = [*tensors, *module.parameters()]
        if any(tensor.requires_grad for tensor in differentiable):
            text = f"{sample.desc or ''} ({_describe((construct.args, construct.kwargs))}) ({_describe(arguments)})"
            nondeterminism = info.gradcheck_nondet_tol
            yield Sample(text.strip(), _CopyFirst(module, arguments), tensors, nondeterminism=nondeterminism)


def _bound_samples(case: bounds.Bounded, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Yields the arguments in several layouts, because a kernel may compute vectors otherwise than single elements."""
    row = [tensor.to(device) for tensor in bounds.arguments(case, dtype)]

    def every_third(*tensors: Tensor) -> Any:
        return case.function(*(tensor[::3] for tensor in tensors))

    for name, function, tensors in (
        ("row", case.function, row),
        ("columns", case.function, [tensor.reshape(10, -1).t() for tensor in row]),
        ("every third element", every_third, row),
    ):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        yield Sample(name, Call(function, (tuple(leaves), {})), leaves)


def entries(dtypes: tuple[torch.dtype, ...] = DTYPES, numerical: bool = False, device: str = "cpu") -> list[Entry]:
    """Returns the entries that have samples of these types on this device, "cpu" or "cuda".

    They are every operator that supports autograd, every module in training and in evaluation mode, and the operators
    with bounds. With ``numerical``, those whose derivatives can be compared with differences of results.
    """
    found: list[Entry] = []
    for info in op_db:
        of_operator = tuple(
            dtype
            for dtype in dtypes
            if dtype in info.supported_backward_dtypes(device) and dtype in info.supported_dtypes(device)
        )
        if not info.supports_autograd or not of_operator:
            continue
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        found.append(
            Entry(
                name, partial(_operator_samples, info, info.op, numerical, device), of_operator, info.supports_gradgrad
            )
        )
    for module_info in module_db:
        # The list names types of each module for other tests. Where eager has no kernel for a reduced type, it raises.
        of_module = tuple(
            dtype for dtype in dtypes if dtype in REDUCED_DTYPES or dtype in module_info.supported_dtypes(device)
        )
        for training in (True, False):
            name = f"{module_info.name} ({'train' if training else 'eval'})"
            samples = partial(_module_samples, module_info, training, device)
            found.append(Entry(name, samples, of_module, module_info.supports_gradgrad))
    if numerical:
        return found
    of_bounds = tuple(dtype for dtype in dtypes if dtype in bounds.INTEGERS)
    for case in bounds.CASES:
        samples = partial(_bound_samples, case, device)
        found.append(Entry(f"bounds of {case.name}", samples, of_bounds, is_of_bounds=True))
    return found
