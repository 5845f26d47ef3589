"""The models that benchmarks, tests and the demo train: ordinary ``nn.Module`` code that ``torch.jit.script`` accepts.

    workload = make("gpt")                    # the sizes that the benchmarks report
    workload = make("gpt", size="small")      # the same code, a few milliseconds a step, for tests
    loss = workload.step(workload.module)     # gradients freed, forward, backward

Nothing here knows about recomputation, and nothing is arranged to make it look good: no hand-placed checkpoints, no
fused attention replaced where an author would have used it, dropout where the papers have it.

===========  =========================================================  ==============================================
name         full                                                       small
===========  =========================================================  ==============================================
gpt          6 blocks, width 256, 4 heads, 256 tokens, batch 8          3 blocks, width 64, 2 heads, 32 tokens, batch 4
resnet50     blocks 3+4+6+3, base width 64, batch 8, 3x128x128, 1000    blocks 2+2+2+2, base width 8, batch 4,
             classes                                                    3x64x64, 10 classes
mlp          10 linear layers of width 1024, batch 4096                 10 linear layers of width 64, batch 64
transformer  3+3 layers, width 256, 4 heads, ff 1024, 128+128 tokens,   2+2 layers, width 32, 2 heads, ff 64,
             batch 16, vocabulary 1000                                  16+16 tokens, batch 4, vocabulary 50
===========  =========================================================  ==============================================
"""

import math
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# ----------------------------------------------------------------------------------------------------------------------
# GPT
# ----------------------------------------------------------------------------------------------------------------------


class CausalSelfAttention(nn.Module):
    """Multi-head attention written out: every intermediate is a value of the graph, as in most hand-written code."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = 1.0 / math.sqrt(width // heads)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.attention_dropout = nn.Dropout(dropout)
        self.residual_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        """x: (batch, length, width); future: bool (length, length), true where a query may not look."""
        batch, length, width = x.size(0), x.size(1), x.size(2)
        query, key, value = self.qkv(x).split(width, dim=2)
        query = query.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        key = key.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        value = value.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        scores = (query @ key.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(future, float("-inf"))
        weights = self.attention_dropout(F.softmax(scores, dim=-1))
        mixed = (weights @ value).transpose(1, 2).contiguous().view(batch, length, width)
        return self.residual_dropout(self.projection(mixed))


class FeedForward(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.contract(self.gelu(self.expand(x))))


class Block(nn.Module):
    """A pre-norm block: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = CausalSelfAttention(width, heads, dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, dropout)

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), future)
        return x + self.feed_forward(self.feed_forward_norm(x))


class GPT(nn.Module):
    """A GPT-2 style language model with learned positions.

    ``forward(tokens, targets)`` takes int64 (batch, length) each, length at most `context`, and returns the mean cross
    entropy in nats; ``logits(tokens)`` returns (batch, length, vocabulary). The default vocabulary is ASCII.
    """

    def __init__(
        self,
        blocks: int = 6,
        width: int = 256,
        heads: int = 4,
        context: int = 256,
        vocabulary: int = 128,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(context, width)
        self.embedding_dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1))
        self.apply(self._initialise)

    @torch.jit.unused
    def _initialise(self, module: nn.Module) -> None:
        """GPT-2's initialisation: normal with deviation 0.02, biases zero."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def logits(self, tokens: Tensor) -> Tensor:
        length = tokens.size(1)
        positions = torch.arange(length, device=tokens.device)
        future = self.future[:length, :length]
        x = self.embedding_dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x, future)
        return self.head(self.norm(x))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        logits = self.logits(tokens)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


# ----------------------------------------------------------------------------------------------------------------------
# ResNet-50
# ----------------------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride), 1x1, each with batch norm; in-place ReLU as torchvision has it."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, downsample: Optional[nn.Module]) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet of bottleneck blocks: images (batch, 3, height, width) to logits (batch, classes).

    `blocks` gives the number of blocks in each of the four stages; `width` the channels of the first (64 in the paper).
    """

    def __init__(self, blocks: Tuple[int, int, int, int], width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._stage(width, width, blocks[0], stride=1)
        self.layer2 = self._stage(4 * width, 2 * width, blocks[1], stride=2)
        self.layer3 = self._stage(8 * width, 4 * width, blocks[2], stride=2)
        self.layer4 = self._stage(16 * width, 8 * width, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(32 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
        outputs = width * Bottleneck.expansion
        downsample = nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
        )
        first = Bottleneck(inputs, width, stride, downsample)
        return nn.Sequential(first, *[Bottleneck(outputs, width, 1, None) for _ in range(blocks - 1)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# ----------------------------------------------------------------------------------------------------------------------
# MLP
# ----------------------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    """`layers` linear layers of one width with ReLU between them: (batch, width) to (batch, width)."""

    def __init__(self, layers: int = 10, width: int = 1024) -> None:
        super().__init__()
        modules: List[nn.Module] = [nn.Linear(width, width)]
        for _ in range(layers - 1):
            modules += [nn.ReLU(), nn.Linear(width, width)]
        self.layers = nn.Sequential(*modules)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


# ----------------------------------------------------------------------------------------------------------------------
# Transformer
# ----------------------------------------------------------------------------------------------------------------------

PADDING = 0


class Attention(nn.Module):
    """Multi-head attention of one sequence over another, or over itself."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = 1.0 / math.sqrt(width // heads)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def _split(self, x: Tensor) -> Tensor:
        """(batch, length, width) to (batch, heads, length, width / heads)."""
        return x.view(x.size(0), x.size(1), self.heads, x.size(2) // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        """x: (batch, queries, width); memory: (batch, keys, width); hidden: bool, broadcast to (batch, heads, queries,
        keys), true where a query may not look."""
        query = self._split(self.query(x))
        key = self._split(self.key(memory))
        value = self._split(self.value(memory))
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(hidden, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, value).transpose(1, 2).reshape(x.size(0), x.size(1), x.size(2))
        return self.output(mixed)


class PositionWise(nn.Module):
    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(torch.relu(self.expand(x))))


class EncoderLayer(nn.Module):
    """Post-norm, as in the paper: norm(x + dropout(sublayer(x)))."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward = PositionWise(width, inner, dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, x, hidden)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = Attention(width, heads, dropout)
        self.self_attention_norm = nn.LayerNorm(width)
        self.cross_attention = Attention(width, heads, dropout)
        self.cross_attention_norm = nn.LayerNorm(width)
        self.feed_forward = PositionWise(width, inner, dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, hidden: Tensor, memory_hidden: Tensor) -> Tensor:
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, hidden)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, memory_hidden)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def sinusoids(length: int, width: int) -> Tensor:
    """The fixed positions of section 3.5 of the paper, float32 (length, width)."""
    positions = torch.arange(length, dtype=torch.float32).unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(positions * rates)
    table[:, 1::2] = torch.cos(positions * rates)
    return table


class Transformer(nn.Module):
    """The encoder-decoder of "Attention is all you need" (Vaswani et al., 2017), one vocabulary for both sides.

    ``forward(source, target)`` takes int64 (batch, source length) and (batch, target length + 1), padded at the end
    with 0. The decoder reads ``target[:, :-1]`` and is asked for ``target[:, 1:]``; padding is not asked for. Returns
    the mean cross entropy in nats. As in section 3.4 of the paper, the two embeddings and the last linear layer are
    one tensor: its gradient has three terms.
    """

    def __init__(
        self,
        layers: int = 3,
        width: int = 256,
        heads: int = 4,
        inner: int = 1024,
        vocabulary: int = 1000,
        context: int = 128,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.padding = PADDING  # TorchScript reads attributes, not the globals of a file
        self.embedding_scale = math.sqrt(width)
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", sinusoids(context, width))
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1))
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList([EncoderLayer(width, heads, inner, dropout) for _ in range(layers)])
        self.decoder = nn.ModuleList([DecoderLayer(width, heads, inner, dropout) for _ in range(layers)])

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.embedding_scale
        return self.dropout(x + self.positions[: tokens.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, asked = target[:, :-1], target[:, 1:]
        length = read.size(1)
        source_hidden = (source == self.padding).unsqueeze(1).unsqueeze(2)
        # Padding stands at the end, so that a query always sees its own start: no row is hidden altogether.
        target_hidden = (read == self.padding).unsqueeze(1).unsqueeze(2) | self.future[:length, :length]

        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory, source_hidden)
        x = self.embed(read)
        for layer in self.decoder:
            x = layer(x, memory, target_hidden, source_hidden)
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), asked.reshape(-1), ignore_index=self.padding)


# ----------------------------------------------------------------------------------------------------------------------
# Workloads
# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Workload:
    """A model with one batch for it.

    `module` is in training mode. `loss_fn` maps its output to a scalar loss; it is None where the module returns the
    loss itself. Both forms are in use, so both are here: the language models include their loss, the others do not.
    """

    name: str
    module: nn.Module
    inputs: Tuple[Tensor, ...]
    loss_fn: Optional[Callable[[Tensor], Tensor]] = None

    def loss(self, module: Callable[..., Tensor]) -> Tensor:
        """The scalar loss of `module` (this workload's, a copy, or anything compiled from it) on the batch."""
        output = module(*self.inputs)
        return output if self.loss_fn is None else self.loss_fn(output)

    def step(self, module: nn.Module) -> Tensor:
        """Frees the gradients, runs forward and backward, and returns the detached loss. No optimizer step."""
        module.zero_grad(set_to_none=True)
        loss = self.loss(module)
        loss.backward()
        return loss.detach()

    def to(self, device: str) -> "Workload":
        """The same workload with module and batch on `device`. The module is moved in place, as ``nn.Module.to``
        does; targets that `loss_fn` holds follow the output's device by themselves."""
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return Workload(self.name, self.module.to(device), inputs, self.loss_fn)


def _gpt(size: str) -> Workload:
    vocabulary = 128
    if size == "full":
        batch, length = 8, 256
        module = GPT(blocks=6, width=256, heads=4, context=length, vocabulary=vocabulary)
    else:
        batch, length = 4, 32
        module = GPT(blocks=3, width=64, heads=2, context=length, vocabulary=vocabulary)
    text = torch.randint(vocabulary, (batch, length + 1))
    return Workload("gpt", module, (text[:, :-1].contiguous(), text[:, 1:].contiguous()))


def _resnet50(size: str) -> Workload:
    if size == "full":
        batch, edge, classes = 8, 128, 1000
        module = ResNet(blocks=(3, 4, 6, 3), width=64, classes=classes)
    else:
        # 64 pixels leave 2x2 in the last stage: with 32 the last batch norms would have 4 values each to average.
        batch, edge, classes = 4, 64, 10
        module = ResNet(blocks=(2, 2, 2, 2), width=8, classes=classes)
    images = torch.randn(batch, 3, edge, edge)
    labels = torch.randint(classes, (batch,))
    return Workload(
        "resnet50", module, (images,), lambda logits: F.cross_entropy(logits, labels.to(logits.device))
    )


def _mlp(size: str) -> Workload:
    width, batch = (1024, 4096) if size == "full" else (64, 64)
    module = MLP(layers=10, width=width)
    inputs, targets = torch.randn(batch, width), torch.randn(batch, width)
    return Workload("mlp", module, (inputs,), lambda output: F.mse_loss(output, targets.to(output.device)))


def _padded_tokens(batch: int, length: int, vocabulary: int) -> Tensor:
    """Random tokens (batch, length) whose rows end in padding: the first row has none, others up to a half."""
    tokens = torch.randint(1, vocabulary, (batch, length))
    lengths = torch.randint(length // 2, length + 1, (batch, 1))
    lengths[0] = length
    return tokens.masked_fill(torch.arange(length) >= lengths, PADDING)


def _transformer(size: str) -> Workload:
    if size == "full":
        batch, length, vocabulary = 16, 128, 1000
        module = Transformer(layers=3, width=256, heads=4, inner=1024, vocabulary=vocabulary, context=length)
    else:
        batch, length, vocabulary = 4, 16, 50
        module = Transformer(layers=2, width=32, heads=2, inner=64, vocabulary=vocabulary, context=length)
    source = _padded_tokens(batch, length, vocabulary)
    target = _padded_tokens(batch, length + 1, vocabulary)
    return Workload("transformer", module, (source, target))


_FACTORIES: Dict[str, Callable[[str], Workload]] = {
    "gpt": _gpt,
    "resnet50": _resnet50,
    "mlp": _mlp,
    "transformer": _transformer,
}

NAMES: Tuple[str, ...] = tuple(_FACTORIES)
SIZES: Tuple[str, ...] = ("full", "small")


def make(name: str, size: str = "full", seed: int = 0) -> Workload:
    """Builds a model in training mode and one batch for it, equal for equal arguments.

    The caller's random state is left as it was. Raises ValueError for a name outside `NAMES` or a size outside `SIZES`.
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
    """Every model, built one at a time."""
    for name in NAMES:
        yield make(name, size)
