"""The three logs of a step as files."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse

from tasks_app.events.logs import LogKind, render_log
from tasks_app.views.access import step_or_404


def step_log(request: HttpRequest, task_id: int, position: int, kind: str) -> HttpResponse:
    step = step_or_404(request, task_id, position)
    if kind not in set(LogKind):
        raise Http404(f"There is no log of kind “{kind}”.")
    text = render_log(step, LogKind(kind))
    response = HttpResponse(text, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="task-{task_id}-step-{position}-{kind}.log"'
    return response
