"""What is tried: each kind draws inputs from the corpus and judges them."""

import functools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import aten_recompute

from . import commands, files
from .mutate import change_json
from .nets import NETS, judge_step, net

CORPUS = Path(__file__).parent / "corpus"


@dataclass
class Kind:
    """Inputs of one kind, what is wrong with one, and how many of them a fork judges."""

    draw: Callable[[random.Random], Any]
    judge: Callable[[Any], tuple[bool, str]]
    batch: int = 8


# ---- options ----


@functools.cache
def _specs() -> list[Any]:
    texts = [path.read_text() for path in sorted((CORPUS / "spec").glob("*.json"))]
    return [json.loads(text) for text in texts if text.startswith("{")]


def _draw_options(draw: random.Random) -> Any:
    return draw.choice(NETS), change_json(draw.choice(_specs()), draw)


def _judge_options(given: Any) -> tuple[bool, str]:
    name, options = given
    return judge_step(name, lambda module: aten_recompute.lower(module, json.dumps(options)))


# ---- plans ----


@functools.cache
def _plans(name: str) -> list[Any]:
    """Returns plans of the network, as save_plan() writes them, for several budgets."""
    plans = []
    for budget in (0.95, 0.6):
        options: dict[str, Any] = {"memory_budget": budget, "cost_model": "flops", "unreachable": "leanest"}
        lowered = aten_recompute.lower(torch.jit.script(net(name).scene.eager()), "budget", **options)
        net(name).step(lowered)
        plans.append(json.loads(torch.ops.aten_recompute.plan(lowered._c)))
    return plans


@functools.cache
def _names(name: str) -> list[str]:
    """Returns names that stand in the plans: of values and operators."""
    found: set[str] = set()
    for plan in _plans(name):
        for region in plan["regions"]:
            found.update(region["drop"], region["instead"], region["instead"].values())
            found.update(each["value"] for each in region["saved"])
    return sorted(found)


def _draw_plan(draw: random.Random) -> Any:
    name = draw.choice(NETS)
    plan = draw.choice(_plans(name))
    if draw.random() < 0.5:
        # Other drops at random: these are the plans that are well-formed.
        plan = json.loads(json.dumps(plan))
        for region in plan["regions"]:
            slots = range(draw.choice([1, 2, 40]))
            for value in draw.sample(_names(name), min(3, len(_names(name)))):
                region["drop"][value] = draw.sample(slots, draw.randint(1, len(slots)))
            for value in list(region["drop"]):
                if draw.random() < 0.3:
                    del region["drop"][value]
        return name, plan
    return name, change_json(plan, draw, odd=lambda draw: draw.choice([*_names(name), *range(6), [0], [0, 1, 2]]))


def _judge_plan(given: Any) -> tuple[bool, str]:
    name, plan = given
    return judge_step(name, lambda module: aten_recompute.lower(module, json.dumps({"plan": plan})))


KINDS: dict[str, Kind] = {
    "options": Kind(_draw_options, _judge_options),
    "plans": Kind(_draw_plan, _judge_plan),
    "files": Kind(files.draw, files.judge, batch=4),
    "commands": Kind(commands.draw, commands.judge, batch=4),
}
