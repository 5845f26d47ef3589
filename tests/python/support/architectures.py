"""Architectures of Hugging Face transformers, small and with random weights, traced as their users trace them.

``make architectures`` prints a table of the differentiated operators, by the source of their gradient.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import aten_recompute

BATCH, LENGTH, IMAGE = 2, 16, 32


@dataclass
class Architecture:
    """A model and the arguments that it is called with."""

    config: Callable[[int], Any]  # maps the number of layers to a configuration
    model: Any
    inputs: Callable[[], dict[str, Tensor]]


class Called(nn.Module):
    """Calls a model with keyword arguments and returns its first result, so that ``torch.jit.trace`` can follow."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, tensors, strict=True)), return_dict=False)[0]


def _tokens() -> Tensor:
    return torch.randint(1, 99, (BATCH, LENGTH))


def _mask() -> Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, LENGTH // 2 :] = 0
    return mask


def _image() -> Tensor:
    return torch.randn(BATCH, 3, IMAGE, IMAGE)


_WIDTH: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}

ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": Architecture(
        lambda layers: transformers.GPT2Config(
            vocab_size=99, n_positions=256, n_embd=32, n_head=4, n_layer=layers, use_cache=False
        ),
        transformers.GPT2LMHeadModel,
        lambda: {"input_ids": _tokens(), "attention_mask": _mask()},
    ),
    "bert": Architecture(
        lambda layers: transformers.BertConfig(vocab_size=99, num_hidden_layers=layers, **_WIDTH),
        transformers.BertForMaskedLM,
        lambda: {"input_ids": _tokens(), "attention_mask": _mask()},
    ),
    "vit": Architecture(
        lambda layers: transformers.ViTConfig(image_size=IMAGE, patch_size=8, num_hidden_layers=layers, **_WIDTH),
        transformers.ViTForImageClassification,
        lambda: {"pixel_values": _image()},
    ),
    "t5": Architecture(
        lambda layers: transformers.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_heads=4, num_layers=layers, use_cache=False
        ),
        transformers.T5ForConditionalGeneration,
        lambda: {"input_ids": _tokens(), "attention_mask": _mask(), "decoder_input_ids": _tokens()},
    ),
    "llama": Architecture(
        lambda layers: transformers.LlamaConfig(
            vocab_size=99, num_hidden_layers=layers, num_key_value_heads=2, use_cache=False, **_WIDTH
        ),
        transformers.LlamaForCausalLM,
        lambda: {"input_ids": _tokens(), "attention_mask": _mask()},
    ),
    "convnext": Architecture(
        lambda layers: transformers.ConvNextConfig(
            hidden_sizes=[16, 32], depths=[max(1, layers // 2)] * 2, num_stages=2, image_size=IMAGE, drop_path_rate=0.1
        ),
        transformers.ConvNextForImageClassification,
        lambda: {"pixel_values": _image()},
    ),
    "whisper": Architecture(
        lambda layers: transformers.WhisperConfig(
            vocab_size=99,
            num_mel_bins=8,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            d_model=32,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=32,
            max_target_positions=64,
            use_cache=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
        transformers.WhisperForConditionalGeneration,
        lambda: {"input_features": torch.randn(BATCH, 8, 64), "decoder_input_ids": _tokens()},
    ),
    "swin": Architecture(
        lambda layers: transformers.SwinConfig(
            image_size=IMAGE,
            patch_size=4,
            embed_dim=16,
            depths=[max(1, layers // 2)] * 2,
            num_heads=[2, 4],
            window_size=4,
        ),
        transformers.SwinForImageClassification,
        lambda: {"pixel_values": _image()},
    ),
}


def make(name: str, attention: str = "eager", layers: int = 2) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Returns the model in training mode, and its inputs."""
    torch.manual_seed(3)
    architecture = ARCHITECTURES[name]
    config = architecture.config(layers)
    config._attn_implementation = attention
    model = architecture.model(config).train()
    inputs = architecture.inputs()
    return Called(model, tuple(inputs)), tuple(inputs.values())


KINDS = [
    (name, attention)
    for name in ARCHITECTURES
    for attention in (("eager",) if name == "convnext" else ("eager", "sdpa"))
]


def trace(module: nn.Module, inputs: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
    return torch.jit.trace(module, inputs, check_trace=False, strict=False)


@dataclass
class Gradients:
    """The operators of a lowered module that a gradient passes, by the source of their gradient."""

    regions: int
    by: dict[str, Counter[str]]  # for "rule", "user_rule" and "tape", the operators by name
    around: Counter[str]  # autograd nodes outside of regions, by name


def gradients_of(lowered: torch.jit.ScriptModule, output: Tensor) -> Gradients:
    """Counts the operators of ``lowered``, which returned ``output``."""
    regions = [
        region
        for method in aten_recompute.report(lowered)["methods"]
        for specialization in method["specialisations"]
        for region in specialization["regions"]
    ]
    by: dict[str, Counter[str]] = {kind: Counter() for kind in ("rule", "user_rule", "tape")}
    for region in regions:
        for variant in region["variants"]:
            for kind, counts in variant["gradients_by"].items():
                by[kind].update(counts)
    pending, seen = [output.grad_fn], {output.grad_fn}
    while pending:
        for following, _ in pending.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    names = [node.name() for node in seen if not node.name().startswith("AtenRecompute")]
    return Gradients(len(regions), by, Counter(name for name in names if not name.endswith("AccumulateGrad")))


def main() -> None:
    warnings.simplefilter("ignore")
    print("| model | attention | regions | operators | rule | user's rule | tape | around regions |")
    print("|---|---|---|---|---|---|---|---|")
    for name, attention in KINDS:
        model, inputs = make(name, attention)
        lowered = aten_recompute.lower(trace(model, inputs), "none")
        found = gradients_of(lowered, lowered(*inputs))
        counts = [sum(found.by[kind].values()) for kind in found.by] + [sum(found.around.values())]
        total = sum(counts)
        shares = " | ".join(f"{count} ({count / total:.0%})" for count in counts)
        print(f"| {name} | {attention} | {found.regions} | {total} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
