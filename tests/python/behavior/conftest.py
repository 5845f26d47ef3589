"""Tests of this folder compare results to the bit, so one thread computes sums, in one order."""

import pytest


@pytest.fixture(autouse=True)
def bits_agree(one_thread: None) -> None:
    """Uses one thread in each test."""
