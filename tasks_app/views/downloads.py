"""The three logs of a step as files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, StreamingHttpResponse

from tasks_app.events.logs import LogKind, render_log
from tasks_app.views.access import step_or_404

#: Pieces of a log (a line or so each) that are sent at once.
PIECES = 200


def step_log(request: HttpRequest, task_id: int, position: int, kind: str) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if kind not in set(LogKind):
        raise Http404(f"There is no log of kind “{kind}”.")
    text = render_log(step, LogKind(kind))
    response = StreamingHttpResponse(_streamed(text), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="task-{task_id}-step-{position}-{kind}.log"'
    return response


async def _streamed(pieces: Iterator[str]) -> AsyncIterator[str]:
    """A log may have any length: it is rendered as it is sent, some pieces at a time."""
    while part := await sync_to_async(_joined)(pieces):
        yield part


def _joined(pieces: Iterator[str]) -> str:
    return "".join(islice(pieces, PIECES))
