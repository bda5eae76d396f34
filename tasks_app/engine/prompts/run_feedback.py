"""What an agent is told when it runs again: how its last run ended, and what humans decided since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.db.models import Q

from tasks_app.agent.port import BUDGET_SPENT
from tasks_app.agent.tools import was_broken_off
from tasks_app.agent.transcript_port import Transcript
from tasks_app.agent.transcripts import was_rejected
from tasks_app.core.phases import Phase
from tasks_app.engine.prompts.review_requests import request_text
from tasks_app.engine.prompts.values import attempts_left_of
from tasks_app.history.events.reading import Events
from tasks_app.models import (
    DecisionEvent,
    DecisionEventKind,
    EventKind,
    Outcome,
    Question,
    QuestionKind,
    Review,
    Run,
    Step,
    Transition,
    Verdict,
)
from tasks_app.prompting.decisions import entry
from tasks_app.prompting.feedback import (
    NOT_DONE,
    AnsweredQuestion,
    Deed,
    Feedback,
    answer_feedback,
    applied_feedback,
    budget_feedback,
    changed_decisions_feedback,
    cost_answer_feedback,
    crash_feedback,
    failed_check_feedback,
    interruption_feedback,
    lost_remark_feedback,
    not_done_feedback,
    set_aside_feedback,
    soft_limit_feedback,
    taken_back_feedback,
    usage_limit_feedback,
)
from tasks_app.services.decisions.content import holding_for, listed_in_prompt

#: Why a decision does not hold any more.
_ENDINGS = (DecisionEventKind.SUPERSEDED, DecisionEventKind.NARROWED, DecisionEventKind.RETIRED)
#: Changed decisions of which a session is told, the newest ones.
_MOST_NEW = 50


def feedback_of(step: Step, last: Run, answers: Sequence[Question], reviews: Sequence[Review]) -> Feedback:
    """Return what the agent is told about why it runs again, and then what reviewers request."""
    if not reviews:
        return _why_again(step, last, answers)
    requested = request_text(step, reviews)
    if last.outcome == Outcome.FINISHED and all(report["passed"] for report in last.checks or []):
        return requested
    return Feedback(f"{_why_again(step, last, answers)}\n\n{requested}")


def _why_again(step: Step, last: Run, answers: Sequence[Question]) -> Feedback:
    """Return what the agent is told about how the last run ended."""
    if answers:
        texts = [one for question in answers for one in _answered(question)]
        answered = answer_feedback(texts, answered_by=answered_by(answers[-1]))
        return joined(answered, applied_note(answers))
    if last.outcome == Outcome.ASKED:
        return set_aside_feedback()
    if last.outcome == Outcome.FINISHED and last.checks:
        report = next((one for one in last.checks if not one["passed"]), last.checks[-1])
        return failed_check_feedback(
            check=report["check"],
            reason=_check_failure(report),
            output=report.get("order") or report["output"],
            has_own_home=bool(report.get("exit_code")),
            passed_already=report.get("exit_code") == 0 and not report["passed"],
            attempts=attempts_left_of(step),
        )
    if last.outcome == Outcome.LIMIT and last.questions.about_costs().exists():
        return soft_limit_feedback()
    if last.outcome == Outcome.LIMIT and (step.task.waits_for_budget or last.error == BUDGET_SPENT):
        return budget_feedback()
    if last.outcome == Outcome.LIMIT:
        return usage_limit_feedback(reset_at=step.task.resets_at)
    if last.outcome == Outcome.FAILED and last.error.startswith(NOT_DONE):
        return not_done_feedback(last.error.removeprefix(NOT_DONE))
    if last.outcome == Outcome.FAILED:
        return crash_feedback(detail=last.error)
    return interruption_feedback(*_interrupting_deeds(last))


#: How a person stops a task, by the phase that it gets.
_STOPS = {Phase.CANCELLED: "cancelled the task", Phase.INTERRUPTED: "stopped the task"}


def _interrupting_deeds(last: Run) -> list[Deed]:
    """Return who stopped the task since the run began, and who resumed it; empty if the machine did."""
    since = Transition.objects.filter(task=last.step.task_id, step=None, at__gte=last.started_at)
    changes = since.select_related("actor").order_by("at", "pk")
    stop = changes.filter(target__in=_STOPS).last()
    if stop is None:
        return []
    deeds = [_deed(stop, _STOPS[Phase(stop.target)])]
    resumed = changes.filter(source=stop.target, at__gte=stop.at).exclude(actor=None).last()
    return [*deeds, _deed(resumed, "resumed it")] if resumed else deeds


def _deed(change: Transition, did: str) -> Deed:
    return Deed(did, change.actor.shown_name if change.actor else "", change.at)


def _result_of(question: Question) -> str | None:
    """Return the result of an approved call that an earlier run made, "" if none was stored, or None."""
    if question.handed_in_id is None or question.kind != QuestionKind.APPROVAL or question.is_turned_down:
        return None
    results = Events(Q(run=question.handed_in_id)).of_kinds([EventKind.TOOL_RESULT])
    result = results.first_with("tool_use_id", question.tool_use_id)
    text = str(result.payload["text"]) if result else ""
    return "" if was_broken_off(text) else text


def _check_failure(report: dict[str, object]) -> str:
    if problem := str(report.get("problem", "")):
        problem = problem.removesuffix(".")
        if problem.startswith("The "):
            return f"the {problem.removeprefix('The ')}"
        return problem
    if report.get("timed_out"):
        return "it did not end in time"
    code = report.get("exit_code")
    if code is None:
        return "it failed"
    return f"it ended with exit code {code}"


def cost_answers(step: Step) -> list[Question]:
    """Return what humans decided at the soft cost limit before this step, and no agent has read."""
    settled = step.questions.about_costs().settled().filter(delivered_at=None)
    return list(settled.select_related("answered_by"))


def cost_note(granted: Sequence[Question]) -> Feedback:
    """Return what humans decided at the soft cost limit, as a note of the portal; "" without an answer."""
    return joined(
        *(
            cost_answer_feedback(
                decided_by=answered_by(question),
                answer=question.answers[question.headline],
                notes=question.notes,
                to_finish=question.tool_input.get("finish_usd") if question.finishes else None,
            )
            for question in granted
        )
    )


def early_end_in_force(step: Step) -> list[Question]:
    """Return the answer to finish early, which a new session has not read yet."""
    if not step.task.is_finishing_early:
        return []
    return list(step.questions.finishings().select_related("answered_by").reverse()[:1])


def joined(*texts: str) -> Feedback:
    """Return the texts as paragraphs, without empty ones."""
    return Feedback("\n\n".join(filter(None, texts)))


def answered_by(question: Question) -> str:
    """Return who gave the answer, as the agent reads it."""
    return question.answerer or "a human"


def applied_note(answers: Sequence[Question]) -> Feedback:
    """Return which of the answers decisions gave, as a note of the portal; "" if humans gave them."""
    labels = [one.answerer for one in answers if one.is_applied]
    return applied_feedback(labels) if labels else Feedback("")


def decisions_note(step: Step, last: Run, transcript: Transcript) -> Feedback:
    """Return how the project's decisions have changed since the session last read them; "" if they have not.

    That is since its last run began that can have read what it was told. A new session reads those that hold.
    """
    runs = step.runs.filter(session_id=last.session_id).exclude(outcome=Outcome.CRASHED).order_by("-pk")
    since = next((run for run in runs if not _rejected_approvals(run, transcript)), last).started_at
    events = DecisionEvent.objects.filter(decision__project=step.task.project_id, at__gte=since)
    events = events.select_related("decision").order_by("at", "pk")
    ended = {
        event.decision_id: f"{event.decision.label} does not hold any more. {event.note}".strip()
        for event in events.filter(kind__in=_ENDINGS, decision__decided_at__lt=since)
        if not event.decision.is_active
    }
    excepted = events.filter(kind=DecisionEventKind.EXCEPTION, task=step.task_id)
    exceptions = dict.fromkeys(event.decision.label for event in excepted)
    restored = events.filter(kind=DecisionEventKind.RESTORED).values("decision")
    begun = holding_for(step).filter(Q(decided_at__gte=since) | Q(pk__in=restored))
    begun = begun.select_related("decided_by", "question__task", "replaces").order_by("number")
    own = set(begun.filter(question__task=step.task_id).values_list("number", flat=True))
    new = [
        # Of its own questions the agent has the answers already.
        replace(known, question="") if known.number in own else known
        for known in listed_in_prompt(list(begun[:_MOST_NEW]))
    ]
    if not (ended or exceptions or new):
        return Feedback("")
    return changed_decisions_feedback(
        list(ended.values())[-_MOST_NEW:], list(exceptions), list(map(entry, new))
    )


def _rejected_approvals(run: Run, transcript: Transcript) -> list[Question]:
    """Return the run's approved calls that the program rejected: what was said beside them did not arrive."""
    approved = Question.objects.filter(handed_in=run, kind=QuestionKind.APPROVAL, verdict=Verdict.APPROVED)
    handed_in = approved.select_related("answered_by")
    return [one for one in handed_in if was_rejected(transcript, one.tool_use_id)]


def lost_remarks_note(last: Run, transcript: Transcript) -> Feedback:
    """Return what humans remarked beside approvals of the last run that did not reach its agent."""
    lost = [one for one in _rejected_approvals(last, transcript) if one.notes]
    return joined(*(lost_remark_feedback(answered_by(one), one.notes) for one in lost))


def answers_in_place(step: Step) -> list[Question]:
    """Return what humans answered in place of decisions before this step, and no agent has read."""
    settled = step.questions.asked_again().settled().filter(delivered_at=None)
    return list(settled.select_related("answered_by", "reopens__applied"))


def portal_notes(answered: Sequence[Question]) -> Feedback:
    """Return the answers to questions that the portal itself asked, as notes; "" without an answer."""
    in_place = [question for question in answered if question.reopens_id]
    about_costs = [question for question in answered if not question.reopens_id]
    return joined(cost_note(about_costs), *map(_note_in_place, in_place))


def _note_in_place(question: Question) -> Feedback:
    before = question.reopens.answerer if question.reopens else "a decision"
    return taken_back_feedback(_answered(question), decision=before, answered_by=answered_by(question))


def _answered(question: Question) -> list[AnsweredQuestion]:
    evidence = question.evidence[0]["text"] if question.evidence else ""
    return [
        AnsweredQuestion(
            asked,
            answer,
            outcome=question.outcome,
            kind=question.kind,
            evidence=evidence,
            result=_result_of(question),
        )
        for asked, answer in question.asked_and_answered
    ]
