"""One heap for all threads of a process, and free memory that goes back to the system.

glibc gives each thread a heap of its own, up to eight for each core, and a heap keeps the memory of its
busiest moment: it returns only what is free at its end. A worker has a dozen threads that are busy one after
the other: after 300 tasks, 19 of the 58 MB of its heaps were free. Python works on one thing at a time, so
the threads hardly ever wait for a common heap.

Other C libraries have neither function and are left as they are.
"""

from __future__ import annotations

import ctypes
import gc

#: The parameter of glibc's `mallopt` for the number of heaps.
_M_ARENA_MAX = -8


def use_one_heap() -> None:
    """Let all threads of this process share one heap. To be called before they start."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_ARENA_MAX, 1)


def return_free_memory() -> None:
    """Return pages that are free to the system, wherever they are in the heap. It takes about 2 ms."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


# What a process has loaded stays, so looking for garbage leaves it out.
#
# A full collection looks at every object that may be part of a cycle: in a web server at 150,000, most of
# them functions, classes and templates, for 50 ms. Whoever waits for a page meanwhile waits so much longer.


#: Full collections after which what survived stays for good. With the first pages, tasks or connections a
#: process loads most of what it needs; by then that is done. What is alive just then and becomes part of a
#: cycle later is never freed: a few requests and connections.
FREEZES = 5
_FULL = 2


def keep_what_is_loaded() -> None:
    """Switch collection on, without what is there by now and what survives the first full collections."""
    left = FREEZES

    def collected(phase: str, about: dict[str, int]) -> None:
        nonlocal left
        if phase != "stop" or about["generation"] != _FULL:
            return
        gc.freeze()
        left -= 1
        if not left:
            gc.callbacks.remove(collected)

    gc.freeze()
    if FREEZES:
        gc.callbacks.append(collected)
    gc.enable()
