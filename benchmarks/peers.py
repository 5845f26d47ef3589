"""The methods that aten_recompute is compared with: those that PyTorch has to train an eager model in less memory.

Each one is a function from a benchmark model to a module that trains the same parameters: those in `CHECKPOINTS`, and
the results of `aot_min_cut` and `inductor`. The models know nothing about them; `BLOCKS` says where their blocks are.

* ``torch.utils.checkpoint``, without reentrant autograd, around each block, or around segments of about sqrt(n) blocks.
  The last segment has no checkpoint because its backward comes first, as in ``checkpoint_sequential``.
* Selective checkpointing of each block: results of matrix products and convolutions are saved, others recomputed.
* AOTAutograd with the min-cut partitioner, running eager's kernels, at a share of the activation memory.
* ``torch.compile`` with inductor at the same shares.

They change the model in place and may rename its parameters.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint as torch_checkpoint

from benchmarks.networks.bert import Bert
from benchmarks.networks.densenet import DenseBlock, DenseLayer, DenseNet
from benchmarks.networks.gpt import GPT
from benchmarks.networks.mlp import MLP, MLPWithLoss
from benchmarks.networks.mobilenet import MobileNet
from benchmarks.networks.resnet import ResNet
from benchmarks.networks.transformer import Transformer
from benchmarks.networks.unet import UNet

Compile = Callable[[nn.Module], nn.Module]

# The attributes of each model that hold its blocks. If one is no ModuleList or Sequential, it is itself a block.
BLOCKS: dict[type, tuple[str, ...]] = {
    GPT: ("blocks",),
    ResNet: ("layer1", "layer2", "layer3", "layer4"),
    MLP: ("layers",),
    MLPWithLoss: ("layers",),
    Transformer: ("encoder", "decoder"),
    UNet: ("entry", "down1", "down2", "down3", "down4", "up1", "up2", "up3", "up4"),
    DenseNet: ("stages",),
    MobileNet: ("features",),
    Bert: ("layers",),
}

aten = torch.ops.aten
# The operators whose results selective checkpointing saves.
PRODUCTS = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
]


# ---- Checkpointing ---------------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    """Runs `block` under ``torch.utils.checkpoint``."""

    def __init__(self, block: nn.Module, selective: bool = False) -> None:
        super().__init__()
        self.block = block
        self.context: dict[str, Any] = {}
        if selective:
            self.context["context_fn"] = functools.partial(
                torch_checkpoint.create_selective_checkpoint_contexts, PRODUCTS
            )

    def forward(self, *inputs: Any) -> Any:
        return torch_checkpoint.checkpoint(self.block, *inputs, use_reentrant=False, **self.context)


class Chain(nn.Module):
    """Applies blocks one after another to the first argument; each of them also gets the other arguments."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        for block in self.blocks:
            x = block(x, *others)
        return x


def _pair_layers(model: MLP) -> None:
    """Makes blocks of the MLP's layers: each linear layer with the ReLU after it."""
    layers = list(model.layers)
    model.layers = nn.Sequential(*[nn.Sequential(*layers[i : i + 2]) for i in range(0, len(layers), 2)])


def _block_lists(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name in BLOCKS[type(model)]:
        yield name, getattr(model, name)


def checkpoint_blocks(model: nn.Module, selective: bool = False) -> nn.Module:
    """Puts a checkpoint around each block of `model`."""
    if isinstance(model, MLP):
        _pair_layers(model)
    for name, blocks in _block_lists(model):
        if isinstance(blocks, (nn.ModuleList, nn.Sequential)):
            for index, block in enumerate(blocks):
                blocks[index] = Checkpointed(block, selective)
        else:
            setattr(model, name, Checkpointed(blocks, selective))
    return model


def checkpoint_segments(model: nn.Module) -> nn.Module:
    """Puts a checkpoint around each segment of about sqrt(n) of the n blocks, except for the last segment.

    A segment has blocks from one list only.
    """
    if isinstance(model, UNet):
        return UNetInSegments(model)
    if isinstance(model, DenseNet):
        return _densenet_in_segments(model)
    if isinstance(model, MLP):
        _pair_layers(model)
    lists = list(_block_lists(model))
    size = math.ceil(math.sqrt(sum(len(blocks) for _, blocks in lists)))
    for name, blocks in lists:
        chains = [Chain(list(blocks)[i : i + size]) for i in range(0, len(blocks), size)]
        last = len(chains) - 1 if blocks is lists[-1][1] else len(chains)
        segments = [Checkpointed(chain) for chain in chains[:last]] + chains[last:]
        sequential = isinstance(blocks, nn.Sequential)
        setattr(model, name, nn.Sequential(*segments) if sequential else nn.ModuleList(segments))
    return model


class UNetInSegments(nn.Module):
    """The nine blocks of a U-Net in three segments of three; the skips are outputs of the first two segments."""

    def __init__(self, model: UNet) -> None:
        super().__init__()
        self.model = model

    def _high(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x1 = self.model.entry(x)
        x2 = self.model.down1(x1)
        return x1, x2, self.model.down2(x2)

    def _low(self, x3: Tensor) -> Tensor:
        x4 = self.model.down3(x3)
        return self.model.up1(self.model.down4(x4), x4)

    def forward(self, x: Tensor) -> Tensor:
        x1, x2, x3 = torch_checkpoint.checkpoint(self._high, x, use_reentrant=False)
        x = torch_checkpoint.checkpoint(self._low, x3, use_reentrant=False)
        x = self.model.up2(x, x3)
        x = self.model.up3(x, x2)
        x = self.model.up4(x, x1)
        return self.model.head(x)


class DenseChain(nn.Module):
    """Dense layers one after another: takes the features before them and returns their own, concatenated."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, *features: Tensor) -> Tensor:
        known = list(features)
        for layer in self.layers:
            known.append(layer(known))
        return torch.cat(known[len(features) :], 1)


class SpreadFeatures(nn.Module):
    """Passes a list of features as single arguments, so that a checkpoint keeps them and not a list that grows."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.module(*features)


def _densenet_in_segments(model: DenseNet) -> DenseNet:
    """Divides the n dense layers into segments of about sqrt(n) layers."""
    blocks = [stage for stage in model.stages if isinstance(stage, DenseBlock)]
    size = math.ceil(math.sqrt(sum(len(block.layers) for block in blocks)))
    for block in blocks:
        chains = [DenseChain(list(block.layers)[i : i + size]) for i in range(0, len(block.layers), size)]
        last = len(chains) - 1 if block is blocks[-1] else len(chains)
        segments = [Checkpointed(chain) for chain in chains[:last]] + chains[last:]
        block.layers = nn.ModuleList([SpreadFeatures(segment) for segment in segments])
    return model


def checkpoint_bottlenecks(model: nn.Module) -> nn.Module:
    """Puts a checkpoint around the first half of each dense layer, as torchvision's ``memory_efficient=True`` does.

    That half is the concatenation, batch norm, ReLU and 1x1 convolution.
    """

    def wrap(bottleneck: Callable[[list[Tensor]], Tensor]) -> Callable[[list[Tensor]], Tensor]:
        def run(features: list[Tensor]) -> Tensor:
            return torch_checkpoint.checkpoint(lambda *given: bottleneck(list(given)), *features, use_reentrant=False)

        return run

    for module in model.modules():
        if isinstance(module, DenseLayer):
            module.bottleneck = wrap(module.bottleneck)  # type: ignore[assignment, method-assign]
    return model


CHECKPOINTS: dict[str, Compile] = {
    "checkpoint": checkpoint_blocks,
    "checkpoint_sqrt": checkpoint_segments,
    "selective": functools.partial(checkpoint_blocks, selective=True),
}
# For DenseNet only.
DENSENET_CHECKPOINTS: dict[str, Compile] = {"checkpoint_bottlenecks": checkpoint_bottlenecks}


# ---- Compilers -------------------------------------------------------------------------------------------------------


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not training or running_mean is None or running_var is None:
        return NotImplemented
    output, mean, inverse_deviation = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, eps)
    count = x.numel() // x.size(1)
    variance = (1.0 / inverse_deviation.square() - eps) * (count / max(count - 1, 1))
    new_mean = momentum * mean + (1.0 - momentum) * running_mean
    new_var = momentum * variance + (1.0 - momentum) * running_var
    return output, mean, inverse_deviation, new_mean, new_var


def _batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    inverse_deviation: Tensor | None,
    training: bool,
    eps: float,
    mask: list[bool],
) -> Any:
    if not training or running_mean is None:
        return NotImplemented
    return aten.native_batch_norm_backward(gradient, x, weight, None, None, mean, inverse_deviation, True, eps, mask)


# Without these decompositions, a partition that recomputes a batch norm fails, because it reads the running statistics
# after the forward has updated them in place. The kernels remain those of eager; only the update of the statistics is
# written operator by operator.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
}


def _run_graph(graph_module: torch.fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], Any]:
    """A compiler that compiles nothing: eager's kernels run in the order of the graph.

    The function takes ownership of its list of arguments, so that each is freed after its last use.
    """
    graph_module.graph.set_codegen(torch.fx.graph._BoxedCodeGen())
    graph_module.recompile()

    def run(arguments: list[Any]) -> Any:
        return graph_module(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _save(nodes: Iterable[torch.fx.Node]) -> None:
    for node in nodes:
        node.meta["recompute"] = torch_checkpoint.CheckpointPolicy.MUST_SAVE


def _budget_for(model: nn.Module, budget: float) -> float:
    """Returns the budget at which PyTorch's partitioner trains `model` correctly.

    If the budget requires it, the min-cut partitioner of PyTorch 2.13 recomputes operators that draw random numbers,
    without restoring the generator's state: the dropout masks of forward and backward differ, and the gradients are
    wrong. Therefore both compilers mark such operators as saved. At a budget of 0 the partitioner ignores marks, so a
    budget just above 0 is used for models with dropout.
    """
    draws = any(isinstance(module, nn.Dropout) and module.p > 0.0 for module in model.modules())
    return max(budget, 1e-9) if draws else budget


def aot_min_cut(budget: float) -> Compile:
    """Returns AOTAutograd with the min-cut partitioner at this ``activation_memory_budget``, with eager's kernels."""

    def compile_module(model: nn.Module) -> nn.Module:
        from torch._functorch import config
        from torch._functorch.aot_autograd import aot_module
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        granted = _budget_for(model, budget)

        def partition(joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
            _save(n for n in joint.graph.nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()))
            with config.patch(activation_memory_budget=granted):
                return min_cut_rematerialization_partition(joint, inputs, **options)

        compiled: nn.Module = aot_module(
            model,
            fw_compiler=_run_graph,
            bw_compiler=_run_graph,
            partition_fn=partition,
            decompositions=DECOMPOSITIONS,
        )
        return compiled

    return compile_module


def inductor(budget: float) -> Compile:
    """Returns ``torch.compile`` with its default backend at this ``activation_memory_budget``.

    Each result has a backend function of its own, because dynamo compares backends before it takes a compiled function
    from its cache: so each copy of a model keeps the budget that it was compiled with.
    """

    def compile_module(model: nn.Module) -> nn.Module:
        from torch._functorch import config as functorch_config
        from torch._inductor import config as inductor_config
        from torch._inductor.compile_fx import compile_fx
        from torch._inductor.custom_graph_pass import CustomGraphPass

        class SaveSeeds(CustomGraphPass):
            """Saves the tensor of seeds from which inductor computes every mask; this costs almost no memory."""

            def __call__(self, graph: torch.fx.Graph) -> None:
                _save(node for node in graph.nodes if node.target is torch.ops.prims.inductor_seeds.default)

            def uuid(self) -> Any:
                return "aten_recompute benchmarks: save inductor_seeds"

        granted = _budget_for(model, budget)

        def backend(graph_module: torch.fx.GraphModule, example_inputs: list[Tensor]) -> Any:
            with (
                functorch_config.patch(activation_memory_budget=granted),
                inductor_config.patch(joint_custom_post_pass=SaveSeeds()),
            ):
                return compile_fx(graph_module, example_inputs)

        # The limit counts all copies of a model, whatever their backend.
        torch._dynamo.config.recompile_limit = 256
        compiled: nn.Module = torch.compile(model, backend=backend)  # type: ignore[assignment]
        return compiled

    return compile_module


def forget_compiled() -> None:
    """Frees the code and caches of ``torch.compile``. A copy that is used afterward is compiled again."""
    torch._dynamo.reset()
