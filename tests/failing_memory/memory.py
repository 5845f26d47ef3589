"""What fails: tensors, or what the library itself requests of the C++ library and of the system."""

import ctypes
from pathlib import Path

from benchmarks.memory import BUILT, tracker

PRELOAD = Path(BUILT).parent / "libaten_recompute_failing_memory.so"

# Kinds of requests: the memory of tensors, by the tracking allocator; `operator new` of the library itself; mmap and
# posix_memalign, by which it gets arenas and blocks. The last two need the process to run with PRELOAD.
TENSORS, NEW, MAPS = "tensors", "new", "maps"
KINDS = (TENSORS, NEW, MAPS)

_NUMBERS = {NEW: 1, MAPS: 2}


class Memory:
    """The requests of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        tracker.install()
        if kind != TENSORS:
            self._library = ctypes.CDLL(None)  # the preloaded library is among the symbols of the process
            self._library.failing_memory_arm.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int]
            for name in ("requests", "live_blocks"):
                getattr(self._library, f"failing_memory_{name}").restype = ctypes.c_int64
            if self._library.failing_memory_find_library() != 0:
                raise RuntimeError("libaten_recompute.so is not loaded")

    def fail(self, n: int, and_later: bool = False) -> None:
        """Lets the `n`-th request from now on fail, and all later ones as well if told so; 0 only counts."""
        if self.kind == TENSORS:
            tracker.fail(n, and_later)
        else:
            self._library.failing_memory_arm(_NUMBERS[self.kind], n, int(and_later))

    def stop(self) -> int:
        """Ends it, and returns the number of requests since `fail` was called."""
        if self.kind == TENSORS:
            count = tracker.requests
            tracker.fail(0)
            return count
        count = int(self._library.failing_memory_requests())
        self._library.failing_memory_arm(0, 0, 0)
        return count

    def print_places(self) -> None:
        """Prints from now on where the library makes the request that fails, for ``addr2line -Cfipe``."""
        if self.kind != TENSORS:
            self._library.failing_memory_print_places()

    @property
    def live_bytes(self) -> int:
        """Bytes of tensors that are in memory."""
        return tracker.live_bytes

    def count_blocks(self) -> None:
        """Blocks of `operator new` are counted from now on. Needs another kind than tensors."""
        self._library.failing_memory_count_blocks()

    @property
    def live_blocks(self) -> int:
        """Blocks of the library's `operator new` that were allocated since `count_blocks` and not freed."""
        return int(self._library.failing_memory_live_blocks())
