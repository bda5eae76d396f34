"""What agents say of decisions: which they followed, and which do not fit (D3)."""

from __future__ import annotations

from collections.abc import Sequence

from tasks_app.agent.unfit_spool import UnfitDecision, spooled_unfit
from tasks_app.engine.lease import Lease
from tasks_app.engine.spool_collector import SpoolCollector
from tasks_app.models import Decision, DecisionEvent, DecisionEventKind, ReviewReason, Run
from tasks_app.models.decision import decisions_named_in

_MAX_TEXT = 200_000


def unfit_collector(run: Run, lease: Lease) -> SpoolCollector[UnfitDecision]:
    return SpoolCollector(run, lease, spooled_unfit, _store_all)


def _store_all(run: Run, unfit: Sequence[UnfitDecision]) -> None:
    for said in unfit:
        _store_unfit(run, said.number, said.why, said.key)


def _store_unfit(run: Run, number: int, why: str, key: str) -> None:
    """Note it and open the decision for a review; it stays in force."""
    decision = run.step.task.project.decisions.active().filter(number=number).first()
    if decision is None:
        return
    _, is_new = DecisionEvent.objects.get_or_create(
        decision=decision, kind=DecisionEventKind.UNFIT, key=key,
        defaults={"task": run.step.task, "run": run, "note": why},
    )  # fmt: skip
    if is_new:
        Decision.objects.filter(pk=decision.pk).update(review_reason=ReviewReason.UNFIT, review_note=why)


def note_followed(run: Run, closing: str) -> None:
    """Note which decisions the agent names in its last message. Must be called while the lease is locked."""
    numbers = decisions_named_in(closing[:_MAX_TEXT])
    if not numbers:
        return
    task = run.step.task
    unfit = DecisionEvent.objects.filter(kind=DecisionEventKind.UNFIT, run=run).values("decision")
    for decision in task.project.decisions.active().filter(number__in=numbers).exclude(pk__in=unfit):
        DecisionEvent.objects.get_or_create(
            decision=decision, kind=DecisionEventKind.FOLLOWED, key=f"task-{task.pk}",
            defaults={"task": task, "run": run},
        )  # fmt: skip
