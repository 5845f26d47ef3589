"""BERT (Devlin et al., 2019), trained on its masked language model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .transformer import PADDING, Attention

# The target of a position that is not to be predicted.
IGNORED = -100


class BertLayer(nn.Module):
    """Post-norm: norm(x + dropout(sublayer(x))), with GELU in the second sublayer."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.output_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, x, hidden)))
        return self.output_norm(x + self.dropout(self.contract(F.gelu(self.expand(x)))))


class Bert(nn.Module):
    """The encoder with the head that predicts masked tokens; head and token embedding share one matrix.

    ``forward(tokens, types, targets)`` takes int64 (batch, length) each: tokens padded at the end with 0, types 0 for
    the first and 1 for the second sentence, targets -100 where nothing is to be predicted. It returns the mean cross
    entropy in nats.
    """

    def __init__(
        self,
        layers: int = 6,
        width: int = 256,
        heads: int = 4,
        inner: int = 1024,
        vocabulary: int = 1000,
        context: int = 256,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.padding = PADDING  # TorchScript reads attributes, but no global variables
        self.ignored = IGNORED
        self.token_embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.position_embedding = nn.Embedding(context, width)
        self.type_embedding = nn.Embedding(2, width)
        self.embedding_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([BertLayer(width, heads, inner, dropout) for _ in range(layers)])
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width)
        self.head_bias = nn.Parameter(torch.zeros(vocabulary))
        self.apply(self._initialize)

    @torch.jit.unused
    def _initialize(self, module: nn.Module) -> None:
        """BERT's initialization: normal with deviation 0.02, biases zero."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])

    def forward(self, tokens: Tensor, types: Tensor, targets: Tensor) -> Tensor:
        hidden = (tokens == self.padding).unsqueeze(1).unsqueeze(2)
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.token_embedding(tokens) + self.type_embedding(types) + self.position_embedding(positions)
        x = self.dropout(self.embedding_norm(x))
        for layer in self.layers:
            x = layer(x, hidden)
        x = self.transform_norm(F.gelu(self.transform(x)))
        logits = F.linear(x, self.token_embedding.weight, self.head_bias)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=self.ignored)
