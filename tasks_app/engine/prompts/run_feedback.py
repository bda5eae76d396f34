"""What an agent is told when it runs again: how its last run ended, and what humans decided since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, Q

from tasks_app.agent.port import BUDGET_SPENT
from tasks_app.agent.tools import was_broken_off
from tasks_app.agent.transcript_port import Transcript
from tasks_app.agent.transcripts import has_prompt, was_rejected
from tasks_app.core.phases import Phase
from tasks_app.engine.planning.plan import found_to_differ
from tasks_app.engine.prompts.review_requests import request_text
from tasks_app.engine.prompts.values import attempts_left_of, ended_in_words
from tasks_app.history.events.reading import Events, may_be_compacted
from tasks_app.models import (
    DecisionEvent,
    DecisionEventKind,
    DecisionState,
    EventKind,
    Outcome,
    Question,
    QuestionKind,
    Reason,
    Review,
    Run,
    Step,
    StepKind,
    Transition,
    Verdict,
)
from tasks_app.prompting.decisions import news_entry
from tasks_app.prompting.feedback import (
    NOT_DONE,
    AnsweredQuestion,
    Deed,
    Feedback,
    Message,
    answer_feedback,
    applied_feedback,
    asks_something,
    budget_feedback,
    changed_decisions_feedback,
    cost_answer_feedback,
    crash_feedback,
    failed_check_feedback,
    interruption_feedback,
    lost_remark_feedback,
    messages_feedback,
    not_done_feedback,
    other_plan_feedback,
    retry_feedback,
    set_aside_feedback,
    soft_limit_feedback,
    taken_back_feedback,
    unread_question_feedback,
    usage_limit_feedback,
)
from tasks_app.services.decisions.content import holding_for, kept_after_report, listed_in_prompt

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
        if found_to_differ(last):
            return other_plan_feedback(_first_failed(last)["output"], attempts=attempts_left_of(step))
        return _failed_check(last, attempts=attempts_left_of(step))
    if has_unread_question(step, last):
        return unread_question_feedback()
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


def retry_text(step: Step, *, put_back: bool) -> Feedback:
    """Return what the first run of a step is told that a person retries, with how the last attempt ended."""
    last = step.runs.last()
    not_done = ""
    if last and last.error.startswith(NOT_DONE):
        not_done = last.error.removeprefix(NOT_DONE)
    said = retry_feedback(steps_followed=not step.is_last, put_back=put_back, not_done=not_done)
    if last and last.outcome == Outcome.FINISHED and any(not one["passed"] for one in last.checks or ()):
        return joined(said, _failed_check(last, of_last_attempt=True))
    return said


def _failed_check(last: Run, *, attempts: int | None = None, of_last_attempt: bool = False) -> Feedback:
    report = _first_failed(last)
    return failed_check_feedback(
        check=report["check"],
        reason=_check_failure(report),
        output=report.get("order") or report["output"],
        has_own_home=bool(report.get("exit_code")),
        passed_already=report.get("exit_code") == 0 and not report["passed"],
        attempts=attempts,
        of_last_attempt=of_last_attempt,
    )


def _first_failed(last: Run) -> dict[str, Any]:
    reports = last.checks or []
    return next((one for one in reports if not one["passed"]), reports[-1])


def has_unread_question(step: Step, last: Run) -> bool:
    """Return whether the run's last message asks something, and the agent is to ask or decide in another run.

    It is told so once in a step that may ask, before its work is judged.
    """
    if step.task.threshold == 0 or step.task.is_finishing_early:
        return False
    if last.outcome != Outcome.FINISHED or last.checks is not None:
        return False
    stored = Events(Q(run=last), blocks=may_be_compacted(last.ended_at))
    end = stored.of_kinds([EventKind.RESULT]).last()
    if end is None or not asks_something(str(end.payload.get("text", ""))):
        return False
    return not step.current_runs.filter(reason=Reason.UNREAD_QUESTION).exists()


#: How a person stops a task, by the phase that it gets.
_STOPS = {Phase.CANCELLED: "cancelled the task", Phase.INTERRUPTED: "stopped the task"}


def _interrupting_deeds(last: Run) -> list[Deed]:
    """Return who stopped the task since the run began, and who resumed it; empty if the machine did."""
    since = Transition.objects.filter(task=last.step.task_id, step=None, at__gte=last.started_at)
    changes = since.select_related("actor").order_by("at", "pk")
    stop = changes.filter(target__in=_STOPS).last()
    if stop is None:
        undone = last.step.task.questions.filter(taken_back_at__gte=last.started_at).last()
        if undone is None or undone.taken_back_by is None or undone.taken_back_at is None:
            return []
        did = (
            f"undid {undone.answerer}"
            if undone.is_unanswered
            else f"took back the answer of {undone.answerer}"
        )
        return [Deed(did, undone.taken_back_by.shown_name, undone.taken_back_at)]
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
    since = (_last_informed(last, transcript) or last).started_at
    events = DecisionEvent.objects.filter(decision__project=step.task.project_id, at__gte=since)
    events = events.select_related("decision").order_by("at", "pk")
    ended = {}
    for event in events.filter(kind__in=_ENDINGS, decision__decided_at__lt=since):
        one, why = event.decision, event.note
        if one.is_active:
            continue
        if one.state == DecisionState.SUPERSEDED and one.successors:
            why = f"{one.successors} replaces it."
        ended[one.pk] = f"{one.label} does not hold any more. {why}".strip()
    excepted = events.filter(kind=DecisionEventKind.EXCEPTION, task=step.task_id)
    exceptions = dict.fromkeys(event.decision.label for event in excepted)
    restored = events.filter(kind=DecisionEventKind.RESTORED).values("decision")
    begun = holding_for(step).filter(Q(decided_at__gte=since) | Q(pk__in=restored))
    new = listed_in_prompt(list(begun.as_known().order_by("number")[:_MOST_NEW]), step.task)
    looked_at = set(events.filter(kind=DecisionEventKind.KEPT).values_list("decision", flat=True))
    kept = [
        f"{one.label} stays. {said}"
        for one, said in kept_after_report(step.task).items()
        if one.is_active and one.pk in looked_at
    ]
    if not (ended or exceptions or kept or new):
        return Feedback("")
    return changed_decisions_feedback(
        list(ended.values())[-_MOST_NEW:], list(exceptions), kept, list(map(news_entry, new))
    )


def _last_informed(last: Run, transcript: Transcript) -> Run | None:
    """Return the session's last run whose agent has read its prompt, or what was said beside its answer."""
    for run in last.step.runs.filter(session_id=last.session_id).order_by("-pk"):
        if run.prompt:
            if has_prompt(transcript, run.prompt):
                return run
            continue
        delivered = [one.delivered_at for one in run.answers_handed_in.all()]
        if delivered and all(delivered) and not _rejected_approvals(run, transcript):
            return run
    return None


def messages_note(step: Step, last: Run | None = None, transcript: Transcript | None = None) -> Feedback:
    """Return what people wrote to the agent when they resumed or retried the task; "" without such a message.

    All of it for a new session; what the session of `last` has not read if that goes on.
    """
    written = Transition.objects.filter(task=step.task_id).exclude(message="").select_related("actor")
    if last and (informed := _last_informed(last, transcript or {})):
        written = written.filter(after_run__gte=informed.pk)
    return messages_feedback(
        [
            Message(one.actor.shown_name if one.actor else "a human", one.at, one.message, _got_by(one, step))
            for one in written.order_by("pk")
        ]
    )


def _got_by(message: Transition, step: Step) -> str:
    """Return the name of the step that was told the message and has ended since, if it is another one.

    "" otherwise, and for the clarifying pass, which leaves the work to the steps.
    """
    told = Run.objects.filter(step__task=step.task_id, pk__gt=message.after_run or 0).order_by("pk")
    first = told.exclude(step__kind=StepKind.CLARIFY).select_related("step").first()
    if first is None or first.step_id == step.pk or first.step.phase != Phase.DONE:
        return ""
    return first.step.name


def _rejected_approvals(run: Run, transcript: Transcript) -> list[Question]:
    """Return the run's approved calls that the program rejected: what was said beside them did not arrive."""
    approved = Question.objects.filter(handed_in=run, kind=QuestionKind.APPROVAL, verdict=Verdict.APPROVED)
    handed_in = approved.select_related("answered_by")
    return [one for one in handed_in if was_rejected(transcript, one.tool_use_id)]


def lost_remarks_note(last: Run, transcript: Transcript) -> Feedback:
    """Return what humans remarked beside approvals of the last run that did not reach its agent."""
    lost = [one for one in _rejected_approvals(last, transcript) if one.notes]
    return joined(*(lost_remark_feedback(answered_by(one), one.notes) for one in lost))


def has_undelivered_input(step: Step) -> bool:
    """Return whether reviews, or answers in place of decisions, wait for the step's agent."""
    answers = step.questions.asked_again().settled().filter(delivered_at=None)
    return Step.objects.filter(Exists(step.reviews.undelivered()) | Exists(answers), pk=step.pk).exists()


def answers_to_portal(step: Step) -> list[Question]:
    """Return what humans answered to the portal before this step, and no agent has read.

    They decided at the soft cost limit, or answered in place of decisions.
    """
    asked = step.questions.about_costs() | step.questions.asked_again()
    settled = asked.settled().filter(delivered_at=None)
    return list(settled.select_related("answered_by", "reopens__applied", "reopens__taken_back_by"))


def portal_notes(answered: Sequence[Question]) -> Feedback:
    """Return the answers to questions that the portal itself asked, as notes; "" without an answer."""
    in_place = [question for question in answered if question.reopens_id]
    about_costs = [question for question in answered if not question.reopens_id]
    return joined(cost_note(about_costs), *map(_note_in_place, in_place))


def _note_in_place(question: Question) -> Feedback:
    before = question.reopens
    undone_by = before.taken_back_by if before else None
    return taken_back_feedback(
        _answered(question),
        before=before.answerer if before else "a decision",
        held=before.answer_text if before else "",
        undone_by=undone_by.shown_name if undone_by else "somebody",
        answered_by=answered_by(question),
        ended=before is not None and before.is_unanswered,
    )


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
            ended=ended_in_words(question),
        )
        for asked, answer in question.asked_and_answered
    ]
