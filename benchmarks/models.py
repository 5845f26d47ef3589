"""The models that benchmarks, tests and the demo train: ordinary ``nn.Module`` code that ``torch.jit.script`` accepts.

    workload = make("gpt")                    # the sizes that the benchmarks report
    workload = make("gpt", size="small")      # the same code, a few milliseconds a step, for tests
    loss = workload.step(workload.module)     # gradients freed, forward, backward

Nothing here knows about recomputation, and nothing is arranged in its favor: there are no hand-placed checkpoints, no
fused attention is taken apart where an author would have used it, and dropout is where the papers have it. Each network
is in a file of its own in ``networks/``.

===========  =========================================================  ==============================================
name         full                                                       small
===========  =========================================================  ==============================================
gpt          6 blocks, width 256, 4 heads, 256 tokens, batch 8          3 blocks, width 64, 2 heads, 32 tokens, batch 4
resnet50     blocks 3+4+6+3, base width 64, batch 8, 3x128x128, 1000    blocks 2+2+2+2, base width 8, batch 4,
             classes                                                    3x64x64, 10 classes
mlp          10 linear layers of width 1024, batch 4096                 10 linear layers of width 64, batch 64
mlp_loss     mlp with its loss inside of the module                     the same
transformer  3+3 layers, width 256, 4 heads, ff 1024, 128+128 tokens,   2+2 layers, width 32, 2 heads, ff 64,
             batch 16, vocabulary 1000                                  16+16 tokens, batch 4, vocabulary 50
unet         5 levels of width 32 to 512, batch 4, 3x128x128, 21        5 levels of width 4 to 64, batch 2, 3x32x32,
             classes                                                    3 classes
densenet121  blocks 6+12+24+16, growth 32, batch 8, 3x128x128, 1000     blocks 2+3+3+2, growth 8, batch 4, 3x64x64,
             classes                                                    10 classes
mobilenet    MobileNetV2, batch 16, 3x128x128, 1000 classes            3 stages of width 8 to 16, batch 4, 3x32x32,
                                                                        10 classes
bert         6 layers, width 256, 4 heads, ff 1024, 256 tokens,         2 layers, width 32, 2 heads, ff 64, 16 tokens,
             batch 8, vocabulary 1000                                   batch 4, vocabulary 50
===========  =========================================================  ==============================================
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.networks.bert import IGNORED, Bert
from benchmarks.networks.densenet import DenseNet
from benchmarks.networks.gpt import GPT
from benchmarks.networks.mlp import MLP, MLPWithLoss
from benchmarks.networks.mobilenet import MobileNet
from benchmarks.networks.resnet import ResNet
from benchmarks.networks.transformer import PADDING, Transformer
from benchmarks.networks.unet import UNet


@dataclass
class Workload:
    """A model with one batch for it.

    `module` is in training mode. `loss_fn` maps its output to a scalar loss; it is None if the module returns the loss
    itself. Both forms are common, so both are here: the language models include their loss, most others do not.
    `release_outputs` is the option of that name: whether nothing of the output's size is alive during the backward.
    """

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]
    loss_fn: Callable[[Tensor], Tensor] | None = None
    release_outputs: bool = False

    def loss(self, module: Callable[..., Tensor]) -> Tensor:
        """Returns the scalar loss on the batch, for this workload's module, a copy, or anything compiled from it."""
        output = module(*self.inputs)
        return output if self.loss_fn is None else self.loss_fn(output)

    def step(self, module: nn.Module) -> Tensor:
        """Frees the gradients, runs forward and backward, and returns the detached loss. No optimizer step."""
        module.zero_grad(set_to_none=True)
        loss = self.loss(module)
        loss.backward()
        return loss.detach()

    def to(self, device: str) -> "Workload":
        """Returns the same workload with module and batch on `device`.

        The module is moved in place, as ``nn.Module.to`` does. Targets that `loss_fn` holds are moved when it runs.
        """
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return Workload(self.name, self.module.to(device), inputs, self.loss_fn, self.release_outputs)


def _cross_entropy(labels: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda logits: F.cross_entropy(logits, labels.to(logits.device))


def _gpt(size: str) -> Workload:
    vocabulary = 128
    if size == "large":
        batch, length, vocabulary = 16, 1024, 32768
        module = GPT(blocks=12, width=768, heads=12, context=length, vocabulary=vocabulary)
    elif size == "full":
        batch, length = 8, 256
        module = GPT(blocks=6, width=256, heads=4, context=length, vocabulary=vocabulary)
    else:
        batch, length = 4, 32
        module = GPT(blocks=3, width=64, heads=2, context=length, vocabulary=vocabulary)
    text = torch.randint(vocabulary, (batch, length + 1))
    return Workload("gpt", module, (text[:, :-1].contiguous(), text[:, 1:].contiguous()))


def _resnet50(size: str) -> Workload:
    if size != "small":
        batch, edge, classes = (64, 224, 1000) if size == "large" else (8, 128, 1000)
        module = ResNet(blocks=(3, 4, 6, 3), width=64, classes=classes)
    else:
        # With 64 pixels, the last stage has 2x2. With 32, its batch norms would average 4 values per channel only.
        batch, edge, classes = 4, 64, 10
        module = ResNet(blocks=(2, 2, 2, 2), width=8, classes=classes)
    images = torch.randn(batch, 3, edge, edge)
    labels = torch.randint(classes, (batch,))
    return Workload("resnet50", module, (images,), _cross_entropy(labels), release_outputs=True)


def _mlp_sizes(size: str) -> tuple[int, int]:
    """Returns the width and the batch size."""
    return {"large": (4096, 16384), "full": (1024, 4096), "small": (64, 64)}[size]


def _mlp(size: str) -> Workload:
    width, batch = _mlp_sizes(size)
    module = MLP(layers=10, width=width)
    inputs, targets = torch.randn(batch, width), torch.randn(batch, width)
    return Workload("mlp", module, (inputs,), lambda output: F.mse_loss(output, targets.to(output)))


def _mlp_loss(size: str) -> Workload:
    """Makes the same network and batch as _mlp, except that the module returns the loss."""
    width, batch = _mlp_sizes(size)
    module = MLPWithLoss(layers=10, width=width)
    return Workload("mlp_loss", module, (torch.randn(batch, width), torch.randn(batch, width)))


def _padded_tokens(batch: int, length: int, vocabulary: int) -> Tensor:
    """Returns random tokens (batch, length) whose rows end in padding, up to a half of them; the first row has none."""
    tokens = torch.randint(1, vocabulary, (batch, length))
    lengths = torch.randint(length // 2, length + 1, (batch, 1))
    lengths[0] = length
    return tokens.masked_fill(torch.arange(length) >= lengths, PADDING)


def _transformer(size: str) -> Workload:
    if size == "large":
        batch, length, vocabulary = 64, 256, 32000
        module = Transformer(layers=6, width=512, heads=8, inner=2048, vocabulary=vocabulary, context=length)
    elif size == "full":
        batch, length, vocabulary = 16, 128, 1000
        module = Transformer(layers=3, width=256, heads=4, inner=1024, vocabulary=vocabulary, context=length)
    else:
        batch, length, vocabulary = 4, 16, 50
        module = Transformer(layers=2, width=32, heads=2, inner=64, vocabulary=vocabulary, context=length)
    source = _padded_tokens(batch, length, vocabulary)
    target = _padded_tokens(batch, length + 1, vocabulary)
    return Workload("transformer", module, (source, target))


def _unet(size: str) -> Workload:
    sizes = {"large": (64, 16, 256, 21), "full": (32, 4, 128, 21), "small": (4, 2, 32, 3)}
    width, batch, edge, classes = sizes[size]
    module = UNet(width=width, classes=classes)
    images = torch.randn(batch, 3, edge, edge)
    labels = torch.randint(classes, (batch, edge, edge))
    return Workload("unet", module, (images,), _cross_entropy(labels), release_outputs=True)


def _densenet121(size: str) -> Workload:
    if size != "small":
        batch, edge, classes = (64, 224, 1000) if size == "large" else (8, 128, 1000)
        module = DenseNet(blocks=(6, 12, 24, 16), growth=32, width=64, classes=classes)
    else:
        batch, edge, classes = 4, 64, 10
        module = DenseNet(blocks=(2, 3, 3, 2), growth=8, width=16, classes=classes)
    images = torch.randn(batch, 3, edge, edge)
    labels = torch.randint(classes, (batch,))
    return Workload("densenet121", module, (images,), _cross_entropy(labels), release_outputs=True)


def _mobilenet(size: str) -> Workload:
    if size != "small":
        batch, edge, classes = (128, 224, 1000) if size == "large" else (16, 128, 1000)
        module = MobileNet(classes=classes)
    else:
        batch, edge, classes = 4, 32, 10
        module = MobileNet(((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 2, 1)), first=8, last=64, classes=classes)
    images = torch.randn(batch, 3, edge, edge)
    labels = torch.randint(classes, (batch,))
    return Workload("mobilenet", module, (images,), _cross_entropy(labels), release_outputs=True)


def _bert(size: str) -> Workload:
    """Makes rows whose second half is the second sentence.

    As in the paper, 15 % of the tokens are to be predicted. All of them are masked here, whereas the paper leaves or
    replaces a fifth of them.
    """
    if size == "large":
        batch, length, vocabulary = 32, 512, 30522
        module = Bert(layers=12, width=768, heads=12, inner=3072, vocabulary=vocabulary, context=length)
    elif size == "full":
        batch, length, vocabulary = 8, 256, 1000
        module = Bert(layers=6, width=256, heads=4, inner=1024, vocabulary=vocabulary, context=length)
    else:
        batch, length, vocabulary = 4, 16, 50
        module = Bert(layers=2, width=32, heads=2, inner=64, vocabulary=vocabulary, context=length)
    mask_token = 1
    text = _padded_tokens(batch, length, vocabulary)
    asked = (torch.rand(batch, length) < 0.15) & (text != PADDING)
    asked[:, 0] = True
    tokens = text.masked_fill(asked, mask_token)
    types = (torch.arange(length) >= length // 2).long().expand(batch, length).contiguous()
    return Workload("bert", module, (tokens, types, text.masked_fill(~asked, IGNORED)))


_FACTORIES: dict[str, Callable[[str], Workload]] = {
    "gpt": _gpt,
    "resnet50": _resnet50,
    "mlp": _mlp,
    "mlp_loss": _mlp_loss,
    "transformer": _transformer,
    "unet": _unet,
    "densenet121": _densenet121,
    "mobilenet": _mobilenet,
    "bert": _bert,
}

NAMES: tuple[str, ...] = tuple(_FACTORIES)
SIZES: tuple[str, ...] = ("large", "full", "small")  # "large" is for GPUs


def make(name: str, size: str = "full", seed: int = 0) -> Workload:
    """Builds a model in training mode and one batch for it. Equal arguments give equal workloads.

    The caller's random state is not changed. Raises ValueError for a name outside `NAMES` or a size outside `SIZES`.
    """
    if name not in _FACTORIES:
        raise ValueError(f"no model is called {name!r}; there are {', '.join(NAMES)}")
    if size not in SIZES:
        raise ValueError(f"no size is called {size!r}; there are {', '.join(SIZES)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        workload = _FACTORIES[name](size)
    workload.module.train()
    return workload


def all_workloads(size: str = "full") -> Iterator[Workload]:
    """Builds the models one at a time."""
    for name in NAMES:
        yield make(name, size)
