"""A sample of the zoo, of the packages that are installed: equal bits, one region, nothing on tape."""

import importlib.util

import pytest

from zoo.compare import compare
from zoo.models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_in_eager(name: str) -> None:
    model = MODELS[name]
    if importlib.util.find_spec(model.package) is None:
        pytest.skip(f"{model.package} is not installed")
    row = compare(model, None)
    assert not row.error
    assert row.different == []
    assert row.regions == [1]
    assert not row.on_tape
