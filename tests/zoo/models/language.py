"""Language models of transformers, traced, which is what the package supports."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from .registry import Inputs, model


class Logits(nn.Module):
    """A traced module takes and returns tensors."""

    def __init__(self, name: str, config: str, **options: Any) -> None:
        super().__init__()
        transformers = import_module("transformers")
        options = {"attn_implementation": "eager", "use_cache": False, **options}
        self.model = getattr(transformers, name)(getattr(transformers, config)(**options))

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.model(tokens, return_dict=False)[0]
        return result


def tokens() -> Inputs:
    return (torch.randint(0, 100, (4, 24)),)


def language(name: str, make: Callable[[], nn.Module]) -> None:
    model(f"transformers_{name}", tokens, "transformers", traced=True)(make)


gpt: dict[str, Any] = {"vocab_size": 100, "n_positions": 32, "n_embd": 64, "n_layer": 3, "n_head": 4}
small: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 32,
}
language("gpt2", lambda: Logits("GPT2LMHeadModel", "GPT2Config", **gpt))
language("bert", lambda: Logits("BertForMaskedLM", "BertConfig", **small))
language("llama", lambda: Logits("LlamaForCausalLM", "LlamaConfig", **small))
