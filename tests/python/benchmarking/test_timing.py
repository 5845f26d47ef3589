"""Step times are measured without garbage collections, and those that other programs disturbed are recognized."""

import gc

import pytest

from benchmarks.timing import disturbed, processor_time


def test_a_few_slow_steps_do_not_count_as_disturbed() -> None:
    # The median of the nine is 0.15, 1.15 times the fastest.
    assert not disturbed([0.13, 0.14, 0.15, 3.1, 0.14, 0.15, 2.4, 0.16, 0.17])


def test_a_median_far_above_the_fastest_step_counts_as_disturbed() -> None:
    # The median of the five is 1.1, more than eight times the fastest.
    assert disturbed([0.13, 1.1, 2.4, 0.14, 3.1])


def test_fewer_than_two_steps_do_not_count_as_disturbed() -> None:
    assert not disturbed([])
    assert not disturbed([0.5])


def test_no_garbage_is_collected_while_time_is_measured() -> None:
    with processor_time() as elapsed:
        was_enabled = gc.isenabled()
    assert not was_enabled
    assert gc.isenabled()
    assert elapsed.seconds > 0


def test_garbage_is_collected_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), processor_time():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_a_collector_that_was_off_remains_off() -> None:
    gc.disable()
    try:
        with processor_time():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
