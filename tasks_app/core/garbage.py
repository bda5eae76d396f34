"""What a process has loaded stays, so looking for garbage leaves it out.

A full collection looks at every object that may be part of a cycle: in a web server at 150,000, most of them
functions, classes and templates, for 50 ms. Whoever waits for a page meanwhile waits so much longer.
"""

from __future__ import annotations

import gc

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
