"""When a program was executed: the kernel opens its file then and tells who watches that (inotify)."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_IN_OPEN = 0x20
_EVENT_SIZE = 16


class Executions:
    """The moments (`time.time()`) at which a program's file was opened, while the context is open.

    The file is the same inside a sandbox, which shows it by a bind mount.
    """

    def __init__(self, program: Path) -> None:
        self._program = program
        self.moments: list[float] = []

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC)
        if (
            self._descriptor < 0
            or libc.inotify_add_watch(self._descriptor, os.fsencode(self._program), _IN_OPEN) < 0
        ):
            raise OSError(ctypes.get_errno(), "the program's file cannot be watched")
        self._thread = threading.Thread(target=self._note, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _note(self) -> None:
        while True:
            try:
                read = os.read(self._descriptor, 4096)
            except OSError:  # closed
                return
            self.moments += [time.time()] * (len(read) // _EVENT_SIZE)

    @property
    def milliseconds(self) -> list[float]:
        return [moment * 1000 for moment in self.moments]

    def first_after(self, moment: float) -> float | None:
        return next((one for one in self.moments if one >= moment), None)
