"""The frames of a view are in one chunk of memory, at whatever depth it is called."""

from __future__ import annotations

import resource
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from tasks_app.web.middleware import single_stack_chunk

CALLS, DEPTHS = 500, 120


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def nested(depth: int, call: Callable[[], object]) -> object:
    return nested(depth - 1, call) if depth else call()


def test_no_depth_of_the_stack_makes_calls_map_memory() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        for depth in range(DEPTHS):
            before = page_faults()
            nested(depth, lambda: [nested(3, bool) for _ in range(CALLS)])
            faults.append(page_faults() - before)
        return HttpResponse()

    faults: list[int] = []
    single_stack_chunk(view)(HttpRequest())
    assert max(faults) < CALLS / 2
