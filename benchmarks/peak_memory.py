"""Peak memory of a piece of work in a process of its own, above the imported interpreter.

ru_maxrss is no use here: across fork and exec a child inherits its parent's peak. Linux keeps a
high-water mark of resident memory (VmHWM) that a process may reset for itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def available() -> str | None:
    """None where peaks can be measured, else why not."""
    try:
        CLEAR.write_text("5")
        resident("VmHWM")
    except (OSError, KeyError) as error:
        return f"peak memory needs Linux's /proc/self/clear_refs and VmHWM ({error})"
    return None


def resident(field: str) -> float:
    """VmRSS or VmHWM of this process, in bytes."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024.0 * int(lines[field].split()[0])


def start() -> float:
    """Forget the peak so far; returns the bytes resident now."""
    CLEAR.write_text("5")
    return resident("VmRSS")


def above(before: float) -> float:
    """The peak since `start`, in bytes above what was resident then."""
    return resident("VmHWM") - before


class Children:
    """The peaks of the processes that this one starts meanwhile, interpreters and all."""

    def __enter__(self) -> Children:
        self._peaks: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak(self) -> float:
        """The sum of the children's peaks, in bytes: at least the peak of their sum."""
        return sum(self._peaks.values())

    def _watch(self) -> None:
        parent = f"{os.getpid()}"
        # A high-water mark needs no close watch, and a close one would slow down what is timed.
        while not self._stop.wait(0.25):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    lines = dict(x.split(":", 1) for x in status.read_text().splitlines())
                except (OSError, ValueError):
                    continue
                if lines["PPid"].strip() == parent and "VmHWM" in lines:
                    self._peaks[status.parent.name] = 1024.0 * int(lines["VmHWM"].split()[0])


def printed(command: list[str]) -> list[float]:
    """The numbers on the last line that a Python program prints, run in its own process."""
    done = subprocess.run([sys.executable, *command], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [float(x) for x in done.stdout.splitlines()[-1].split()]
