"""Measures the peak memory of a piece of code, in bytes above the memory in use when it began.

    from benchmarks.memory import tracker

    tracker.install()
    with tracker.measure_peak() as peak:
        loss = model(x); loss.backward()
    print(peak.bytes)

On the CPU the numbers come from ``tracking_allocator.cpp``, a wrapper around LibTorch's own allocator. It counts the
bytes that eager PyTorch, TorchScript or a lowered module request. On CUDA they come from
``torch.cuda.max_memory_allocated``, which counts in the same way, with blocks rounded up to 512 bytes.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

# Beside the library that RECOMPUTE_LIBRARY names, which may be for another version of torch, or in build/.
BUILT = os.environ.get("RECOMPUTE_LIBRARY") or str(Path(__file__).resolve().parent.parent / "build" / "any")
LIBRARY = Path(BUILT).parent / "libaten_recompute_tracking_allocator.so"


class TrackerError(RuntimeError):
    """The tracker cannot be used; the message names the remedy."""


@dataclass
class Peak:
    """A measured peak: `bytes` above `resting_bytes`, the memory in use when the ``with`` block began."""

    bytes: int = 0
    resting_bytes: int = 0

    @property
    def mib(self) -> float:
        return self.bytes / 2**20


@dataclass
class Timeline:
    """The memory in use over time, above the level at the start, with one sample per allocation and release.

    `seconds` starts at 0. `bytes[i]` is the level from `seconds[i]` until the next sample; it is negative if memory
    that was in use at the start has been freed. `dropped` is the number of samples after the buffer was full.
    """

    seconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    dropped: int = 0


class Tracker:
    """Access to the tracking allocator. A process has only one allocator, so use `tracker` of this module."""

    def __init__(self, library: Path = LIBRARY) -> None:
        self._path = library
        self._library: ctypes.CDLL | None = None

    def install(self) -> None:
        """Counts every CPU tensor that is made from now on. A second call has no effect.

        Neither memory that is in use already nor its release is counted. Call this while no other thread makes
        tensors. Raises TrackerError if the library has not been built.
        """
        # Its allocator must be there before the one that counts, which then sees what lowered modules allocate.
        if importlib.util.find_spec("aten_recompute") is not None:
            importlib.import_module("aten_recompute")

        if self._load().aten_recompute_tracker_install() != 0:
            raise TrackerError("the CPU allocator in use cannot be wrapped: something else has replaced LibTorch's")

    def uninstall(self) -> None:
        """Restores LibTorch's allocator. Tensors made in between remain valid, and counted until they are freed."""
        self._load().aten_recompute_tracker_uninstall()

    @property
    def installed(self) -> bool:
        return bool(self._load().aten_recompute_tracker_installed())

    @property
    def live_bytes(self) -> int:
        """Bytes of CPU memory that were allocated since `install` and are still in use."""
        return int(self._load().aten_recompute_tracker_live_bytes())

    @property
    def peak_bytes(self) -> int:
        """The greatest `live_bytes` since `install` or the last `reset_peak`."""
        return int(self._load().aten_recompute_tracker_peak_bytes())

    def reset_peak(self) -> None:
        self._load().aten_recompute_tracker_reset_peak()

    def fail(self, n: int, and_later: bool = False) -> None:
        """Lets the `n`-th request from now on fail, 1 being the next one, as where the system has no memory.

        With `and_later`, all later ones fail, too. 0 ends it. Counting in `requests` begins anew.
        """
        self._load().aten_recompute_tracker_fail(n, int(and_later))

    @property
    def requests(self) -> int:
        """The number of requests since `fail` was called last; those for no bytes do not count."""
        return int(self._load().aten_recompute_tracker_requests())

    @contextlib.contextmanager
    def measure_peak(self, device: str | torch.device = "cpu") -> Iterator[Peak]:
        """Yields a `Peak` whose fields are set when the block ends, with or without an exception.

        Garbage is collected first: if Python freed it in the middle of the block, the peak would seem smaller. Blocks
        cannot be nested, because they share one peak. Raises TrackerError if `device` is a CPU and the tracker is not
        installed.
        """
        device = torch.device(device)
        gc.collect()
        peak = Peak()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            peak.resting_bytes = torch.cuda.memory_allocated(device)
            try:
                yield peak
            finally:
                torch.cuda.synchronize(device)
                peak.bytes = torch.cuda.max_memory_allocated(device) - peak.resting_bytes
            return
        self._require_installed()
        self.reset_peak()
        peak.resting_bytes = self.live_bytes
        try:
            yield peak
        finally:
            peak.bytes = self.peak_bytes - peak.resting_bytes

    @contextlib.contextmanager
    def record_timeline(self, capacity: int = 1_000_000) -> Iterator[Timeline]:
        """Yields a `Timeline` of CPU memory whose fields are set when the block ends.

        At most `capacity` samples of 16 bytes each are kept; further ones are only counted in `dropped`. Raises
        TrackerError if the tracker is not installed or the buffer cannot be allocated.
        """
        self._require_installed()
        gc.collect()
        library = self._load()
        if library.aten_recompute_tracker_timeline_start(capacity) != 0:
            raise TrackerError(f"not enough memory for a timeline of {capacity} samples")
        timeline = Timeline()
        try:
            yield timeline
        finally:
            library.aten_recompute_tracker_timeline_stop()
            count = library.aten_recompute_tracker_timeline_size()
            time_ns = (ctypes.c_int64 * count)()
            live_bytes = (ctypes.c_int64 * count)()
            library.aten_recompute_tracker_timeline_read(time_ns, live_bytes, count)
            # The first sample is taken at the start, so its bytes are the resting level.
            timeline.seconds = [(ns - time_ns[0]) * 1e-9 for ns in time_ns]
            timeline.bytes = [value - live_bytes[0] for value in live_bytes]
            timeline.dropped = library.aten_recompute_tracker_timeline_dropped()

    def _require_installed(self) -> None:
        if not self.installed:
            raise TrackerError("the tracking allocator is not installed: call tracker.install() first")

    def _load(self) -> ctypes.CDLL:
        if self._library is None:
            if not self._path.exists():
                raise TrackerError(f"{self._path.name} is not in {self._path.parent}: run `make build` first")
            try:
                library = ctypes.CDLL(str(self._path))
            except OSError as error:
                raise TrackerError(f"{self._path} cannot be loaded: {error}") from error
            for name in ("live_bytes", "peak_bytes", "requests"):
                getattr(library, f"aten_recompute_tracker_{name}").restype = ctypes.c_int64
            for name in ("timeline_size", "timeline_dropped", "timeline_read"):
                getattr(library, f"aten_recompute_tracker_{name}").restype = ctypes.c_size_t
            library.aten_recompute_tracker_timeline_start.argtypes = [ctypes.c_size_t]
            library.aten_recompute_tracker_timeline_read.argtypes = [
                ctypes.POINTER(ctypes.c_int64),
                ctypes.POINTER(ctypes.c_int64),
                ctypes.c_size_t,
            ]
            library.aten_recompute_tracker_fail.argtypes = [ctypes.c_int64, ctypes.c_int]
            for name in ("uninstall", "reset_peak", "timeline_stop", "fail"):
                getattr(library, f"aten_recompute_tracker_{name}").restype = None
            self._library = library
        return self._library


tracker = Tracker()
