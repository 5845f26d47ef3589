"""The encoder-decoder Transformer (Vaswani et al., 2017)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        """Attends from `x` to `memory`: (batch, queries, width) and (batch, keys, width) to the shape of `x`.

        `hidden` is bool, can be broadcast to (batch, heads, queries, keys), and is true where a query may not look.
        """
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
    with 0. The decoder reads ``target[:, :-1]`` and predicts ``target[:, 1:]``; padding is not predicted. Returns
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
        self.padding = PADDING  # TorchScript reads attributes, but no global variables
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
        # Padding is at the end, so that every query sees the first token: no row is hidden entirely.
        target_hidden = (read == self.padding).unsqueeze(1).unsqueeze(2) | self.future[:length, :length]

        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory, source_hidden)
        x = self.embed(read)
        for layer in self.decoder:
            x = layer(x, memory, target_hidden, source_hidden)
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), asked.reshape(-1), ignore_index=self.padding)
