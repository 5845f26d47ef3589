"""The tracking allocator counts bytes exactly. The expected numbers are worked out in comments."""

import threading

import pytest
import torch

from benchmarks.memory import Tracker, TrackerError

KIB = 1024


def floats(kib: int) -> torch.Tensor:
    """A float32 tensor of `kib` KiB: 256 elements of 4 bytes each per KiB."""
    return torch.empty(kib * 256)


def test_a_tensor_counts_with_exactly_its_bytes(tracker):
    before = tracker.live_bytes
    x = torch.empty(1000)
    assert tracker.live_bytes - before == 4000
    del x
    assert tracker.live_bytes == before


def test_views_cost_nothing_and_hold_their_storage(tracker):
    before = tracker.live_bytes
    x = floats(64)
    view = x.view(2, -1)[1]
    assert tracker.live_bytes - before == 64 * KIB
    del x
    assert tracker.live_bytes - before == 64 * KIB
    del view
    assert tracker.live_bytes == before


def test_peak_is_measured_above_the_resting_level(tracker):
    resting = floats(512)
    with tracker.measure_peak() as peak:
        a = floats(100)  # 100 KiB above rest
        b = floats(200)  # 300
        del a  # 200
        c = floats(50)  # 250: the peak stays 300
    assert peak.bytes == 300 * KIB
    assert peak.mib == 300 / 1024
    assert peak.resting_bytes >= 512 * KIB
    del b, c, resting


def test_peak_of_one_training_step(tracker):
    """Y = relu(x @ w), loss = y.sum(), with x of 64x256 and w of 256x256 resting before.

    x @ w     64 * 256 * 4 = 64 KiB, released when relu has returned, since relu saves its result
    y         64 KiB, alive until its backward is done
    peak of the forward: 128 KiB, plus nothing else: the sum (4 bytes) comes when x @ w is gone.

    grad of the sum                 4 bytes, expanded to y's shape as a view
    grad of x @ w (threshold)      64 KiB
    grad of w    256 * 256 * 4 = 256 KiB, made while the grad of x @ w is alive
    y is released with relu's node once that node has run; `y` itself is not held here.
    peak of the backward: between 64 + 256 KiB and that plus y's 64 KiB and the few scalars.
    """
    x, w = torch.randn(64, 256), torch.randn(256, 256, requires_grad=True)
    with tracker.measure_peak() as peak:
        torch.relu(x @ w).sum().backward()
    assert 320 * KIB <= peak.bytes <= 384 * KIB + 64
    assert w.grad is not None


def test_memory_from_before_is_not_counted_when_it_goes(tracker):
    tracker.uninstall()
    old = floats(32)
    tracker.install()
    before = tracker.live_bytes
    del old
    assert tracker.live_bytes == before


def test_memory_made_while_installed_is_counted_when_it_goes_later(tracker):
    before = tracker.live_bytes
    x = floats(32)
    tracker.uninstall()
    unseen = floats(16)
    assert tracker.live_bytes - before == 32 * KIB
    del x
    assert tracker.live_bytes == before
    del unseen
    assert tracker.live_bytes == before


def test_empty_tensors_and_resizing(tracker):
    before = tracker.live_bytes
    x = torch.empty(0)
    assert tracker.live_bytes == before
    x.resize_(256)
    assert tracker.live_bytes - before == KIB
    x.untyped_storage().resize_(0)
    assert tracker.live_bytes == before


def test_timeline_follows_each_allocation_and_release(tracker):
    with tracker.record_timeline() as timeline:
        a = floats(1)
        b = floats(2)
        del a
        del b
    # One sample at the start, one per change, one at the end.
    assert timeline.bytes == [0, 1 * KIB, 3 * KIB, 2 * KIB, 0, 0]
    assert timeline.seconds[0] == 0.0
    assert timeline.seconds == sorted(timeline.seconds)
    assert timeline.dropped == 0


def test_a_full_timeline_says_what_it_dropped(tracker):
    with tracker.record_timeline(capacity=3) as timeline:
        for _ in range(4):
            floats(1)  # made and released: two samples
    # 1 + 4 * 2 + 1 samples, three of which fit.
    assert timeline.bytes == [0, 1 * KIB, 0]
    assert timeline.dropped == 7


def test_threads_are_counted_together(tracker):
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
    # At least one tensor at a time, at most one for each thread.
    assert 1 * KIB <= peak.bytes <= 4 * KIB


def test_measuring_without_installing_is_refused(tracker):
    tracker.uninstall()
    with pytest.raises(TrackerError, match="call tracker.install"), tracker.measure_peak():
        pass
    with pytest.raises(TrackerError, match="call tracker.install"), tracker.record_timeline():
        pass


def test_a_missing_library_is_one_clear_line(tmp_path):
    missing = Tracker(tmp_path / "libmissing.so")
    with pytest.raises(TrackerError, match=r"^libmissing\.so is not in .*: run `make build` first$"):
        missing.install()


def test_a_broken_library_is_one_clear_line(tmp_path):
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(TrackerError, match="libbroken.so cannot be loaded"):
        Tracker(broken).install()
