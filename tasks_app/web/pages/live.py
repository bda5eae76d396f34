"""The live page: open questions, then running tasks with their last events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from django.db.models import Max, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.core.phases import Phase
from tasks_app.models import Event, Run, Task
from tasks_app.permissions import questions_visible_to, tasks_visible_to
from tasks_app.web.pages.access import principal_of
from tasks_app.web.pages.cards import Card, cards_of
from tasks_app.web.rendering.entries import one_line

MOST = 50
_LINES = 4


@dataclass(frozen=True)
class Running:
    """A running task, its current run and its last events."""

    task: Task
    run: Run | None
    lines: list[tuple[Event, str]]


def live(request: HttpRequest) -> HttpResponse:
    cards = waiting(request, most=MOST + 1)
    context = {"cards": cards[:MOST], "more": len(cards) > MOST, "running": _running(request)}
    return render(request, "live/page.html", context)


def live_running(request: HttpRequest) -> HttpResponse:
    return render(request, "live/_running.html", {"running": _running(request)})


def waiting(request: HttpRequest, *, most: int = MOST) -> list[Card]:
    questions = questions_visible_to(principal_of(request)).open()
    related = questions.select_related("task__project", "step", "run", "answered_by")
    return cards_of(request, related.order_by("asked_at", "pk")[:most])


def _running(request: HttpRequest) -> list[Running]:
    tasks = tasks_visible_to(principal_of(request)).filter(phase=Phase.RUNNING).select_related("project")
    found = list(tasks.defer("text", "body").order_by("-started_at")[:MOST])
    runs = _last_runs(found)
    lines = _last_lines(list(runs.values()))
    return [Running(task, run := runs.get(task.pk), lines.get(run.pk, []) if run else []) for task in found]


def _last_runs(tasks: list[Task]) -> dict[int, Run]:
    """Return the newest run of each task."""
    newest = (
        Run.objects.filter(step__task__in=tasks).order_by().values("step__task").annotate(newest=Max("pk"))
    )
    runs = Run.objects.filter(pk__in=[row["newest"] for row in newest]).select_related("step")
    return {run.step.task_id: run for run in runs.annotate(last_seq=Max("events__seq")).defer("prompt")}


def _last_lines(runs: list[Run]) -> dict[int, list[tuple[Event, str]]]:
    """Return the last events of each run, with one query by id."""
    spans = [
        Q(run=run, seq__gt=run.last_seq - 3 * _LINES)  # type: ignore[attr-defined]
        for run in runs
        if run.last_seq is not None  # type: ignore[attr-defined]
    ]
    if not spans:
        return {}
    lines: dict[int, list[tuple[Event, str]]] = {}
    for event in Event.objects.filter(reduce(or_, spans)).defer("raw").order_by("run", "seq"):
        if event.kind not in ("system", "tool_result") and (line := one_line(event)):
            lines.setdefault(event.run_id, []).append((event, line))
    return {run_id: found[-_LINES:] for run_id, found in lines.items()}
