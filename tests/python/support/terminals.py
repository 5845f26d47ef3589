"""Shells on a terminal, to which a test types."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

PROMPT = "ready> "


class Shell:
    """An interactive shell. ``type`` sends keys, and ``read_until`` waits for what the terminal shows."""

    def __init__(self, arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.terminal, inner = pty.openpty()
        # 50 rows and 400 columns: shells show only a part of a line that is longer.
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
        self.process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), **environment},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def read_until(self, text: str, seconds: float = 30.0) -> str:
        """Returns what is shown up to ``text``, and drops it."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.terminal], [], [], max(left, 0.0))
            assert ready, f"{text!r} is not shown, only {self.shown!r}"
            self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def read_now(self) -> str:
        """Returns what is shown so far, and drops it."""
        while select.select([self.terminal], [], [], 0.0)[0]:
            self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        shown, self.shown = self.shown, ""
        return shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)
