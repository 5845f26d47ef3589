"""A sample of the zoo, of the packages that are installed."""

import importlib.util
from typing import Any

import pytest

from zoo.compare import compare
from zoo.models import MODELS
from zoo.sizes import SIZES, call_with_sizes

# Models that differ from eager PyTorch or have operators on tape, and why.
EXCEPTIONS = {
    "torchaudio_tacotron2": "packs sequences; a view leaves the region, so a sum has another order",
}


def may_fail(name: str) -> Any:
    known = EXCEPTIONS.get(name)
    return pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=known)] if known else [])


@pytest.mark.parametrize("name", map(may_fail, MODELS))
def test_a_model_trains_as_in_eager(name: str) -> None:
    model = MODELS[name]
    if importlib.util.find_spec(model.package) is None:
        pytest.skip(f"{model.package} is not installed")
    row = compare(model, None)
    assert not row.error
    assert row.different == []
    assert set(row.regions) == {1}
    assert not row.on_tape


@pytest.mark.parametrize("name", [name for name, sizes in SIZES.items() if sizes.most == 2])
def test_sizes_share_specializations_and_memory(name: str) -> None:
    package = MODELS[SIZES[name].model].package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    course = call_with_sizes(name, 100)
    assert course.specializations <= 2
    assert course.compiled_regions <= 16
    middle, end = list(course.memory.values())[-2:]
    assert end - middle < 32 * 2**20
