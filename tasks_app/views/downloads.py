"""The three logs of a step as files."""

from __future__ import annotations

from django.http import Http404, HttpRequest, StreamingHttpResponse

from tasks_app.downloading import download
from tasks_app.events.logs import LogKind, render_log
from tasks_app.views.access import step_or_404


def step_log(request: HttpRequest, task_id: int, position: int, kind: str) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if kind not in set(LogKind):
        raise Http404(f"There is no log of kind “{kind}”.")
    name = f"task-{task_id}-step-{position}-{kind}.log"
    return download(render_log(step, LogKind(kind)), name=name, kind="text/plain")
