"""Metrics for Prometheus (O3), read from the rows when somebody asks.

No process counts anything: each may be killed, and several machines would have to be added up. So a counter
is a sum over rows, and becomes smaller when a task is removed; Prometheus takes that as a restart. Only
events are not counted, which would take seconds: their highest number is nearly the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from statistics import quantiles

from django.db.models import Count, Max, Min, Q, Sum
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tasks_app.core.phases import Phase
from tasks_app.core.version import version
from tasks_app.models import (
    Delivery,
    DeliveryState,
    Event,
    Outcome,
    Question,
    QuestionKind,
    Run,
    Task,
    WorkerBeat,
)
from tasks_app.models.task import EarlyEnd

#: Answers within this time are looked at for how long they took to reach their agent, but no more than MOST.
RECENT = timedelta(hours=1)
MOST = 1_000
_TOKENS = ("input", "output", "cache_write", "cache_read")


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
        yield from _tasks()
        yield from _questions()
        yield _answers_to_agents()
        yield from _runs()
        yield from _workers()
        yield from _notifications()


def _gauge(name: str, help_text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value in values:
        family.add_metric([value], values[value])
    return family


def _tasks() -> Iterator[Metric]:
    early = Q(phase=Phase.DONE, early_end=EarlyEnd.ENDED)
    rows = Task.objects.order_by().values("phase").annotate(all=Count("pk"), early=Count("pk", filter=early))
    found = {row["phase"]: (row["all"], row["early"]) for row in rows}
    counts: dict[str, float] = {str(phase): found.get(phase, (0, 0))[0] for phase in Phase}
    counts["finished_early"] = found.get(Phase.DONE, (0, 0))[1]
    counts[Phase.DONE] -= counts["finished_early"]
    yield _gauge("catherder_tasks", "Tasks by phase; done ones without finished_early.", "phase", counts)
    due = Task.objects.due().exclude(phase=Phase.RUNNING).count()
    yield GaugeMetricFamily("catherder_queue_depth", "Tasks that a worker could take now.", due)


def _questions() -> Iterator[Metric]:
    kinds = Question.objects.open().order_by().values("kind")
    found = {row["kind"]: row for row in kinds.annotate(count=Count("pk"), oldest=Min("asked_at"))}
    counts = {kind: found[kind]["count"] if kind in found else 0 for kind in QuestionKind.values}
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
    cuts = quantiles(seconds if len(seconds) > 1 else seconds * 2, n=20, method="inclusive")
    return {"0.5": cuts[9], "0.95": cuts[18], "1": max(seconds)}


def _runs() -> Iterator[Metric]:
    counts = dict(Run.objects.order_by().values_list("outcome").annotate(Count("pk")))
    running = counts.pop("", 0)
    yield GaugeMetricFamily("catherder_running_agents", "Runs that have not ended.", running)
    outcomes = CounterMetricFamily("catherder_runs", "Ended runs by outcome.", labels=["outcome"])
    for outcome in Outcome.values:
        outcomes.add_metric([outcome], counts.get(outcome, 0))
    yield outcomes
    sums = Run.objects.aggregate(cost=Sum("cost_usd"), **{name: Sum(f"{name}_tokens") for name in _TOKENS})
    tokens = CounterMetricFamily("catherder_tokens", "Tokens of all runs, by kind.", labels=["kind"])
    for name in _TOKENS:
        tokens.add_metric([name], sums[name] or 0)
    yield tokens
    cost = sums["cost"] or 0.0
    yield CounterMetricFamily("catherder_cost_dollars", "Cost of all runs in US dollars.", cost)
    newest = Event.objects.aggregate(newest=Max("pk"))["newest"] or 0
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


def _notifications() -> Iterator[Metric]:
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING).count()
    yield GaugeMetricFamily("catherder_waiting_notifications", "Messages that were not sent yet.", waiting)
