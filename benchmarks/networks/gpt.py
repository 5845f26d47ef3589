"""A GPT-2 style language model."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    """Multi-head attention written operator by operator, as in most hand-written code: nothing is fused."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = 1.0 / math.sqrt(width // heads)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.attention_dropout = nn.Dropout(dropout)
        self.residual_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        """Attends within `x` (batch, length, width); `future` (length, length) is true where a query may not look."""
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
        self.apply(self._initialize)

    @torch.jit.unused
    def _initialize(self, module: nn.Module) -> None:
        """GPT-2's initialization: normal with deviation 0.02, biases zero."""
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
