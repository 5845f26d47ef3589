"""The tracking allocator counts bytes exactly. Comments compute the expected numbers."""

import threading
from pathlib import Path

import pytest
import torch

from benchmarks.memory import Tracker, TrackerError

KIB = 1024


def floats(kib: int) -> torch.Tensor:
    """Returns a float32 tensor of `kib` KiB; a KiB has 256 elements of 4 bytes."""
    return torch.empty(kib * 256)


def test_a_tensor_counts_exactly_its_bytes(tracker: Tracker) -> None:
    before = tracker.live_bytes
    x = torch.empty(1000)
    assert tracker.live_bytes - before == 4000
    del x
    assert tracker.live_bytes == before


def test_a_view_adds_no_bytes_and_keeps_its_storage(tracker: Tracker) -> None:
    before = tracker.live_bytes
    x = floats(64)
    view = x.view(2, -1)[1]
    assert tracker.live_bytes - before == 64 * KIB
    del x
    assert tracker.live_bytes - before == 64 * KIB
    del view
    assert tracker.live_bytes == before


def test_the_peak_is_above_the_level_at_the_start(tracker: Tracker) -> None:
    resting = floats(512)
    with tracker.measure_peak() as peak:
        a = floats(100)  # 100 KiB above the start
        b = floats(200)  # 300
        del a  # 200
        c = floats(50)  # 250, so the peak remains 300
    assert peak.bytes == 300 * KIB
    assert peak.mib == 300 / 1024
    assert peak.resting_bytes >= 512 * KIB
    del b, c, resting


def test_the_peak_of_a_training_step_is_the_computed_one(tracker: Tracker) -> None:
    """The step computes relu(x @ w).sum() with x of 64x256 and w of 256x256, which exist before.

    x @ w     64 * 256 * 4 = 64 KiB, freed when relu has returned, since relu saves its result
    relu      64 KiB, in use until its backward has run
    The peak of the forward is 128 KiB: the sum (4 bytes) is made after x @ w is freed.

    gradient of the sum                 4 bytes, expanded to the shape of relu's result as a view
    gradient of x @ w                  64 KiB
    gradient of w    256 * 256 * 4 = 256 KiB, made while the gradient of x @ w is in use
    The result of relu is freed after relu's autograd node has run. The peak of the backward is therefore between
    64 + 256 KiB and that plus 64 KiB and a few scalars.
    """
    x, w = torch.randn(64, 256), torch.randn(256, 256, requires_grad=True)
    with tracker.measure_peak() as peak:
        torch.relu(x @ w).sum().backward()
    assert 320 * KIB <= peak.bytes <= 384 * KIB + 64
    assert w.grad is not None


def test_the_release_of_memory_from_before_is_not_counted(tracker: Tracker) -> None:
    tracker.uninstall()
    old = floats(32)
    tracker.install()
    before = tracker.live_bytes
    del old
    assert tracker.live_bytes == before


def test_the_release_of_counted_memory_is_counted_after_uninstall(tracker: Tracker) -> None:
    before = tracker.live_bytes
    x = floats(32)
    tracker.uninstall()
    unseen = floats(16)
    assert tracker.live_bytes - before == 32 * KIB
    del x
    assert tracker.live_bytes == before
    del unseen
    assert tracker.live_bytes == before


def test_empty_and_resized_tensors_count_their_bytes(tracker: Tracker) -> None:
    before = tracker.live_bytes
    x = torch.empty(0)
    assert tracker.live_bytes == before
    x.resize_(256)
    assert tracker.live_bytes - before == KIB
    x.untyped_storage().resize_(0)
    assert tracker.live_bytes == before


def test_a_timeline_has_a_sample_per_allocation_and_release(tracker: Tracker) -> None:
    with tracker.record_timeline() as timeline:
        a = floats(1)
        b = floats(2)
        del a
        del b
    # There is one sample at the start, one per change, and one at the end.
    assert timeline.bytes == [0, 1 * KIB, 3 * KIB, 2 * KIB, 0, 0]
    assert timeline.seconds[0] == 0.0
    assert timeline.seconds == sorted(timeline.seconds)
    assert timeline.dropped == 0


def test_a_full_timeline_counts_dropped_samples(tracker: Tracker) -> None:
    with tracker.record_timeline(capacity=3) as timeline:
        for _ in range(4):
            floats(1)  # one sample when it is made, one when it is freed
    # There are 1 + 4 * 2 + 1 samples, three of which fit.
    assert timeline.bytes == [0, 1 * KIB, 0]
    assert timeline.dropped == 7


def test_memory_of_all_threads_is_counted(tracker: Tracker) -> None:
    before = tracker.live_bytes

    def churn() -> None:
        for _ in range(200):
            floats(1)

    with tracker.measure_peak() as peak:
        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert tracker.live_bytes == before
    # At least one tensor is in use at a time, and at most one per thread.
    assert 1 * KIB <= peak.bytes <= 4 * KIB


def test_measuring_without_installing_raises(tracker: Tracker) -> None:
    tracker.uninstall()
    with pytest.raises(TrackerError, match=r"call tracker\.install"), tracker.measure_peak():
        pass
    with pytest.raises(TrackerError, match=r"call tracker\.install"), tracker.record_timeline():
        pass


def test_a_missing_library_raises_one_line(tmp_path: Path) -> None:
    missing = Tracker(tmp_path / "libmissing.so")
    with pytest.raises(TrackerError, match=r"^libmissing\.so is not in .*: run `make build` first$"):
        missing.install()


def test_a_broken_library_raises_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(TrackerError, match=r"libbroken\.so cannot be loaded"):
        Tracker(broken).install()
