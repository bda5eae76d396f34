"""What the next run of a step is to be, worked out from the rows alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from django.db.models import Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from tasks_app.agent.port import Decision, HaltingTools
from tasks_app.agent.questions import GivenAnswer, decision_for, set_aside, uncertain
from tasks_app.agent.transcript_store import Transcript
from tasks_app.agent.transcripts import CallResult, deferred_call, has_prompt, result_in, stored_transcript
from tasks_app.config.pipeline import STEP_SECONDS, step_from_json
from tasks_app.core.errors import TranscriptDamaged
from tasks_app.core.types import Ask, AskItem, AskKind, AskWay, Option
from tasks_app.engine.prompts import attempts_left_of, step_prompt, threshold_text
from tasks_app.engine.transcript_store import DatabaseTranscriptStore
from tasks_app.history.events.past import past_actions
from tasks_app.models import Outcome, Question, QuestionKind, Reason, Run, Step, Verdict, paths
from tasks_app.prompting.feedback import (
    AnsweredQuestion,
    Feedback,
    answer_feedback,
    crash_feedback,
    failed_check_feedback,
    interruption_feedback,
    retry_feedback,
    set_aside_feedback,
    threshold_feedback,
    usage_limit_feedback,
)
from tasks_app.prompting.replay import anew, replay


@dataclass(frozen=True)
class NextRun:
    """A run before it starts: with `resume` in the session of an earlier run, else in a new one.

    `answers` are the questions whose answers it hands in, `turned_down` says of those calls that a human did
    not want who said what. While `planning` the agent may only look. `note` is for the log.
    """

    reason: Reason
    session_id: str
    prompt: str | None
    resume: bool = False
    decisions: dict[str, Decision] = field(default_factory=dict)
    cost_before: float = 0.0
    answers: tuple[int, ...] = ()
    turned_down: dict[str, str] = field(default_factory=dict)
    planning: bool = False
    note: str = ""


#: Outcomes of runs that stored at least the prompt of their session.
_HAS_A_SESSION = (Outcome.ASKED, Outcome.FINISHED, Outcome.LIMIT)


def next_run(step: Step) -> NextRun:
    """The step's next run: its first, or what follows from how the last one ended."""
    last = step.current_runs.last()
    if last is None:
        return replace(_first(step), planning=step_from_json(step.config).plan_approval)
    transcript, damage = _stored_session(last)
    open_answers = undelivered(step, last, transcript)
    planned = _after(step, last, transcript, open_answers)
    if not planned.resume:
        planned = replace(planned, note=_why_replayed(last, transcript, damage))
    answers = tuple(question.pk for question in open_answers)
    turned_down = {one.tool_use_id: _by_whom(one) for one in open_answers if one.is_turned_down}
    return replace(planned, answers=answers, turned_down=turned_down, planning=_planning(step, planned))


def _by_whom(question: Question) -> str:
    who = question.answered_by.shown_name if question.answered_by else "a human"
    return f"{question.outcome.lower()} by {who}"


def _planning(step: Step, planned: NextRun) -> bool:
    """Until a plan is approved; and in the run that takes up the session at the plan's own call, which
    ends the planning."""
    if not step_from_json(step.config).plan_approval:
        return False
    return set(step.questions.approved_plans().values_list("tool_use_id", flat=True)) <= set(
        planned.decisions
    )


def _first(step: Step) -> NextRun:
    """A new session; after a retry it is told that there was an earlier attempt."""
    prompt, session = step_prompt(step), str(uuid.uuid4())
    if step.first_run == 1:
        return NextRun(Reason.FIRST, session, prompt)
    return NextRun(Reason.RETRY, session, anew(prompt, retry_feedback()))


def _after(step: Step, last: Run, transcript: Transcript, open_answers: Sequence[Question]) -> NextRun:
    before = _before_it_was_lost(step, last)
    reason = _reason(before)
    if not transcript or before != last or step.task.resume == "replay":
        return _replayed(step, reason, _feedback(step, before, open_answers))
    session = str(last.session_id)
    cost = cost_before(last) + _reported_cost(last)
    news = _threshold_news(step, last)
    waits_at = deferred_call(transcript)
    decisions = _decisions(step, last, open_answers, waits_at=waits_at, news=news)
    if decisions or (waits_at and not _known(step, waits_at)):
        # Without a decision the call is looked at once more, and then it is asked about.
        return NextRun(reason, session, None, resume=True, decisions=decisions, cost_before=cost)
    prompt = "\n\n".join(filter(None, [_feedback(step, last, open_answers), news]))
    return NextRun(reason, session, prompt, resume=True, cost_before=cost)


def _before_it_was_lost(step: Step, last: Run) -> Run:
    """The run whose session could not be resumed: how that one ended is why the agent is at work again."""
    if last.outcome != Outcome.LOST:
        return last
    return step.current_runs.exclude(outcome=Outcome.LOST).last() or last


def _why_replayed(last: Run, transcript: Transcript, damage: str) -> str:
    """What the log says of a session that is not gone on with; nothing if that was wished for."""
    if last.outcome == Outcome.LOST:
        damage = last.error
    elif not damage and not transcript and last.outcome in _HAS_A_SESSION:
        damage = "nothing of it is stored"
    if not damage:
        return ""
    return (
        f"The session of run {last.number} cannot be resumed ({damage}). "
        "A new session begins with what was done so far."
    )


def _threshold_news(step: Step, last: Run) -> str:
    """What a session must be told if the threshold was changed since it was last told of it; else nothing.

    A run that crashed may have died before it read its prompt.
    """
    told = step.runs.filter(session_id=last.session_id, threshold__isnull=False)
    known = (
        told.exclude(outcome=Outcome.CRASHED).order_by("-number").values_list("threshold", flat=True).first()
    )
    if known is None or known == step.task.threshold:
        return ""
    has_tool = halting_tools(last).ask
    return threshold_feedback(step.task.threshold, instructions=threshold_text(step.task), has_tool=has_tool)


def halting_tools(run: Run) -> HaltingTools:
    """The tools for halting that the run's session began with; see `HaltingTools`."""
    runs = run.step.runs.filter(session_id=run.session_id, threshold__isnull=False)
    began_with = runs.order_by("number").values_list("threshold", flat=True).first()
    threshold = run.step.task.threshold if began_with is None else began_with
    return HaltingTools(ask=threshold > 0, plan=step_from_json(run.step.config).plan_approval)


def transcript_of(run: Run) -> Transcript:
    """The session of the run as stored; empty if nothing is, or if it is damaged."""
    return _stored_session(run)[0]


def _stored_session(run: Run) -> tuple[Transcript, str]:
    """The session, and in what way it is damaged; a damaged one counts as none (H9)."""
    try:
        return _read_session(run), ""
    except TranscriptDamaged as damage:
        return {}, str(damage)


def _read_session(run: Run) -> Transcript:
    cwd = paths.workspace(run.step.task).path
    return stored_transcript(DatabaseTranscriptStore(), cwd=cwd, session_id=str(run.session_id))


def undelivered(step: Step, last: Run, transcript: Transcript) -> list[Question]:
    """Answers that the agent was not seen to get. A worker may have died just after handing one over:
    then the session holds it, as a result or in its prompt, which is noted here, and it must not be
    handed over again."""
    settled = step.questions.settled().filter(delivered_at=None, run__number__gte=step.first_run)
    waiting = list(settled.select_related("answered_by", "run"))
    runs = {question.run_id for question in waiting if _has_result(question, transcript)}
    told = last.prompt and has_prompt(transcript, last.prompt)
    got = {q.pk for q in waiting if q.run_id in runs or (told and q.handed_in_id == last.pk)}
    step.questions.filter(pk__in=got).update(delivered_at=timezone.now())
    return [question for question in waiting if question.pk not in got]


def _has_result(question: Question, transcript: Transcript) -> bool:
    """An answer is a good result; a verdict may as well be that the call failed, or was refused."""
    got = [CallResult.GOOD, CallResult.ERROR] if question.verdict else [CallResult.GOOD]
    return result_in(transcript, question.tool_use_id) in got


def _known(step: Step, call: str) -> bool:
    return step.questions.filter(tool_use_id=call).exists()


def _reason(last: Run) -> Reason:
    if last.outcome == Outcome.FINISHED:
        return Reason.CHECK_FAILED
    reasons = {
        Outcome.ASKED: Reason.ANSWER,
        Outcome.LIMIT: Reason.LIMIT,
        Outcome.FAILED: Reason.RETRY,
    }
    return reasons.get(Outcome(last.outcome), Reason.CRASH)


def _decisions(
    step: Step, last: Run, answers: Sequence[Question], *, waits_at: str, news: str = ""
) -> dict[str, Decision]:
    """What the gate is to say to the call at which the session waits; nothing if it waits at none.

    `news` of the portal itself is told with the answer, because such a run has no prompt.
    """
    main = next((question for question in answers if question.tool_use_id == waits_at), None)
    folder = paths.answers_dir(step.task)
    folder.mkdir(parents=True, exist_ok=True)
    others = [_given(question) for question in answers if question is not main]
    if main is None:
        nobody_asked = waits_at and last.outcome == Outcome.ASKED and not _known(step, waits_at)
        return {waits_at: set_aside(others, folder=folder, news=news)} if nobody_asked else {}
    if main.kind == QuestionKind.APPROVAL and main.verdict == Verdict.APPROVED and main.handed_in_id:
        return {waits_at: uncertain(news)}
    return {waits_at: decision_for(_given(main), others, folder=folder, news=news)}


def _given(question: Question) -> GivenAnswer:
    return GivenAnswer(
        ask_of(question),
        question.answers_in_order,
        question.notes,
        name=f"question-{question.number}",
        by=question.answered_by.shown_name if question.answered_by else "a human",
        dismissed=question.is_dismissed,
        approved=question.verdict == Verdict.APPROVED,
    )


def ask_of(question: Question) -> Ask:
    """The ask that the question's row was made from."""
    items = tuple(
        AskItem(
            item["question"],
            item.get("header", ""),
            tuple(Option(**option) for option in item.get("options", [])),
            item.get("multiSelect", False),
        )
        for item in question.items
    )
    way = cast(AskWay, question.way)
    kind = cast(AskKind, question.kind)
    return Ask(question.tool_use_id, way, items, question.tool_input, kind)


def _feedback(step: Step, last: Run, answers: Sequence[Question]) -> Feedback:
    """Why the agent is at work again, in words."""
    if answers:
        texts = [
            AnsweredQuestion(
                "\n".join(str(item["question"]) for item in question.items),
                question.answer_text,
                outcome=question.outcome,
                kind=question.kind,
                evidence=question.evidence[0]["text"] if question.evidence else "",
            )
            for question in answers
        ]
        who = answers[-1].answered_by
        return answer_feedback(texts, answered_by=who.shown_name if who else "somebody")
    if last.outcome == Outcome.ASKED:
        return set_aside_feedback()
    if last.outcome == Outcome.FINISHED and last.checks:
        report = next((one for one in last.checks if not one["passed"]), last.checks[-1])
        return failed_check_feedback(
            check=report["check"],
            reason=_why(report),
            output=report["output"],
            passed_already=report.get("exit_code") == 0 and not report["passed"],
            attempts=attempts_left_of(step),
        )
    if last.outcome == Outcome.LIMIT:
        return usage_limit_feedback(reset_at=step.task.resets_at)
    if last.outcome == Outcome.FAILED:
        return crash_feedback(detail=last.error)
    return interruption_feedback()


def _why(report: dict[str, object]) -> str:
    if problem := str(report.get("problem", "")):
        return problem.removesuffix(".")
    if report.get("timed_out"):
        return "it did not end in time"
    code = report.get("exit_code")
    return "it failed" if code is None else f"it ended with exit code {code}"


def _replayed(step: Step, reason: Reason, feedback: Feedback) -> NextRun:
    """For a session that is gone, or that is not wanted: a new one that is told what was done (H9)."""
    actions = past_actions(step)
    prompt = replay(step_prompt(step), actions=actions, feedback=feedback)
    return NextRun(reason, str(uuid.uuid4()), prompt)


def cost_before(run: Run) -> float:
    """What the agent said of its session's earlier runs: it reports totals of the session."""
    rows = Run.objects.filter(step=run.step_id, session_id=run.session_id, number__lt=run.number)
    return float(rows.aggregate(total=Sum(Coalesce("reported_cost_usd", "cost_usd")))["total"] or 0.0)


def _reported_cost(run: Run) -> float:
    return run.cost_usd if run.reported_cost_usd is None else run.reported_cost_usd


def timeout_of(step: Step) -> float:
    """Seconds that one run of the step may take."""
    return float(step_from_json(step.config).timeout or STEP_SECONDS)
