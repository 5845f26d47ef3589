#!/usr/bin/env python3
"""Traces a model of Hugging Face, trains it under a memory budget, and puts the parameters back.

    python examples/huggingface_traced.py
    python examples/huggingface_traced.py --model gpt2 --layers 6 --budget 0.3 --steps 20

Models are made with random weights, so nothing is downloaded. A model that you have loaded goes the same way:
``torch.jit.trace`` takes what ``from_pretrained`` returned. The lowered module shares the parameters of the model, so
that ``model.save_pretrained`` saves what was trained.
"""

import argparse
import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from torch import Tensor, nn

import aten_recompute

warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)

VOCABULARY = 1000


class Loss(nn.Module):
    """What is traced takes tensors and returns tensors: ids and labels (batch, length) to the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=ids, use_cache=False, return_dict=False)[0]
        return nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))


def model_of(name: str, layers: int, width: int) -> nn.Module:
    import transformers

    configs: dict[str, Any] = {
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=512, n_embd=width, n_layer=layers, n_head=4
        ),
        "llama": lambda: transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2,
        ),
    }  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(configs[name](), attn_implementation="eager")


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--budget", default="0.4", help='a share of the peak, or bytes such as "64MiB"')
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args(given)
    torch.manual_seed(0)
    model = model_of(arguments.model, arguments.layers, arguments.width).train()
    ids = torch.randint(VOCABULARY, (arguments.batch, arguments.length))
    labels = ids.roll(-1, dims=1)

    # A trace in training mode has dropout in it. Checking it would compare two runs with other random numbers.
    traced = torch.jit.trace(Loss(model), (ids, labels), check_trace=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    try:
        lowered = aten_recompute.lower(traced, "budget", memory_budget=arguments.budget)
        for _ in range(arguments.steps):
            optimizer.zero_grad()
            loss = lowered(ids, labels)
            loss.backward()  # into the parameters of the model
            optimizer.step()
            losses.append(loss.item())
    except ValueError as error:
        print(f"huggingface_traced: {error}", file=sys.stderr)
        return 1
    variants = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    peak, whole = variants[-1]["predicted_peak_bytes"], variants[-1]["unplanned_peak_bytes"]
    print(f"{type(model).__name__}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {arguments.steps} steps")
    print(f"peak of a step: {peak / 2**20:.1f} MiB, {peak / whole:.2f} of that without recomputation")
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
