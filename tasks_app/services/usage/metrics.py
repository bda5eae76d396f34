"""Metrics for Prometheus (O3), read from the rows when somebody asks.

No process counts anything: each may be killed, and several machines would have to be added up. So a counter
is a sum over rows, or over the sums of earlier days, and becomes smaller when a task is removed; Prometheus
takes that as a restart. Only events are not counted, which would take seconds: their highest number is nearly
the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from statistics import quantiles

from django.db.models import Count, Min, Q, Sum
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.version import version
from tasks_app.history.events.reading import newest_event_id
from tasks_app.models import (
    DayFigures,
    Delivery,
    DeliveryState,
    ModelUsage,
    Outcome,
    Question,
    QuestionKind,
    Run,
    Task,
    WorkerBeat,
)
from tasks_app.services.usage.day_sums import OF_RUNS, OF_TASKS, SplitDays, split_days
from tasks_app.services.usage.statistics import usage_of
from tasks_app.services.usage.usage import add_figures, figures_of_days

#: How long answers take to reach their agent is measured in this time, for at most MOST answers.
RECENT = timedelta(hours=1)
MOST = 1_000
_TOKENS = ("input", "output", "cache_write", "cache_read")
_ENDED_TASKS = {
    name: OF_TASKS[name] for name in ("tasks_done", "tasks_finished_early", "tasks_failed", "tasks_cancelled")
}


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format. Raises DatabaseError."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Rows())
    return generate_latest(registry)


class _Rows(Collector):
    def describe(self) -> list[Metric]:
        return []  # otherwise the rows would be read once more

    def collect(self) -> Iterator[Metric]:
        yield _gauge("catherder_build", "1, with the version of the portal.", "version", {version(): 1})
        days = split_days()
        sums = figures_of_days(DayFigures.objects.filter(days.with_sums()), [*_ENDED_TASKS, *OF_RUNS])
        yield from _tasks(days, sums)
        yield from _questions()
        yield _answers_to_agents()
        yield from _runs(days, sums)
        yield from _workers()
        waiting = Delivery.objects.filter(state=DeliveryState.WAITING).count()
        yield GaugeMetricFamily(
            "catherder_waiting_notifications", "Messages that were not sent yet.", waiting
        )


def _gauge(name: str, help_text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value in values:
        family.add_metric([value], values[value])
    return family


def _tasks(days: SplitDays, sums: dict[str, float]) -> Iterator[Metric]:
    counts = {str(phase): 0.0 for phase in Phase}
    unfinished = Task.objects.filter(phase__in=[phase for phase in Phase if phase not in ENDED])
    counts |= unfinished.count_by_phase()
    add_figures(sums, Task.objects.filter(days.without_sums("created_at")), _ENDED_TASKS)
    counts |= {name.removeprefix("tasks_"): sums[name] for name in _ENDED_TASKS}
    yield _gauge("catherder_tasks", "Tasks by phase; done ones without finished_early.", "phase", counts)
    due = Task.objects.due().exclude(phase=Phase.RUNNING).count()
    yield GaugeMetricFamily("catherder_queue_depth", "Tasks that a worker could take now.", due)


def _questions() -> Iterator[Metric]:
    kinds = Question.objects.open().order_by().values("kind")
    found = {row["kind"]: row for row in kinds.annotate(count=Count("pk"), oldest=Min("asked_at"))}
    counts = dict.fromkeys(QuestionKind.values, 0) | {kind: row["count"] for kind, row in found.items()}
    yield _gauge("catherder_open_questions", "Questions that wait for a human, by kind.", "kind", counts)
    oldest = min((row["oldest"] for row in found.values()), default=None)
    age = max((timezone.now() - oldest).total_seconds(), 0.0) if oldest else 0.0
    yield GaugeMetricFamily(
        "catherder_oldest_open_question_seconds", "Age of the oldest open question; 0 without one.", age
    )


def _answers_to_agents() -> Metric:
    """A summary of few figures, because a histogram of all answers would read each of them each time."""
    since = timezone.now() - RECENT
    rows = (
        Question.objects.filter(delivered_at__isnull=False, answered_at__gte=since)
        .order_by("-pk")
        .values_list("answered_at", "delivered_at")[:MOST]
    )
    seconds = [
        max((delivered - answered).total_seconds(), 0.0)
        for answered, delivered in rows
        if answered is not None and delivered is not None
    ]
    return _gauge(
        "catherder_answer_to_agent_seconds",
        "From an answer to the agent that has it, in the last hour; none without one.",
        "quantile",
        _quantiles(seconds),
    )


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    if len(seconds) == 1:
        seconds = seconds * 2
    cuts = quantiles(seconds, n=20, method="inclusive")
    return {"0.5": cuts[9], "0.95": cuts[18], "1": max(seconds)}


def _runs(days: SplitDays, sums: dict[str, float]) -> Iterator[Metric]:
    runs = Run.objects.filter(days.without_sums("started_at"))
    alive = Q(outcome="") & ~Q(step__task__in=Task.objects.without_worker())
    add_figures(sums, runs, {**OF_RUNS, "runs_running": Count("pk", filter=alive)})
    yield GaugeMetricFamily(
        "catherder_running_agents", "Runs that a living worker works on.", sums["runs_running"]
    )
    outcomes = CounterMetricFamily("catherder_runs", "Ended runs by outcome.", labels=["outcome"])
    for outcome in Outcome.values:
        outcomes.add_metric([outcome], sums[f"runs_{outcome}"])
    yield outcomes
    used = usage_of(ModelUsage.objects.filter(days.with_sums())) + usage_of(runs)
    tokens = CounterMetricFamily("catherder_tokens", "Tokens of all runs, by kind.", labels=["kind"])
    for name in _TOKENS:
        tokens.add_metric([name], getattr(used, f"{name}_tokens"))
    yield tokens
    cost = used.cost_usd
    yield CounterMetricFamily("catherder_cost_dollars", "Cost of all runs in US dollars.", cost)
    newest = newest_event_id()
    yield CounterMetricFamily("catherder_events", "The highest number of an event.", newest)


def _workers() -> Iterator[Metric]:
    taking = Count("pk", filter=Q(problem=""))
    found = WorkerBeat.objects.alive().aggregate(
        count=Count("pk"), taking=taking, slots=Sum("slots"), busy=Sum("busy")
    )
    yield GaugeMetricFamily("catherder_workers", "Workers that were seen lately.", found["count"])
    yield GaugeMetricFamily("catherder_workers_taking_tasks", "Those that take tasks.", found["taking"])
    yield GaugeMetricFamily("catherder_worker_slots", "Tasks that they can work on.", found["slots"] or 0)
    yield GaugeMetricFamily("catherder_worker_slots_busy", "Tasks that they work on.", found["busy"] or 0)
