"""The next run of a step, derived from the rows alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from django.conf import settings
from django.db.models import Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from tasks_app.agent.port import CallPermission, HaltingTools
from tasks_app.agent.transcript_port import Transcript
from tasks_app.agent.transcripts import (
    CallResult,
    deferred_call,
    deferred_calls,
    has_prompt,
    result_in,
    stored_transcript,
    was_read,
)
from tasks_app.config.pipeline import step_from_json
from tasks_app.config.repository_settings import STEP_SECONDS
from tasks_app.core.errors import TranscriptDamaged
from tasks_app.core.phases import Phase
from tasks_app.engine.planning.plan import approvals_that_count
from tasks_app.engine.prompts.answer_permissions import has_question, permissions_of, write_answers_again
from tasks_app.engine.prompts.review_requests import (
    later_steps_text,
    request_text,
    requests_of_current_runs,
    rerun_text,
    undelivered_reviews,
)
from tasks_app.engine.prompts.run_feedback import (
    answered_by,
    answers_to_portal,
    decisions_note,
    early_end_in_force,
    feedback_of,
    has_unread_question,
    joined,
    lost_remarks_note,
    messages_note,
    portal_notes,
    retry_text,
)
from tasks_app.engine.prompts.values import step_prompt, threshold_text
from tasks_app.engine.runs.run_recorder import DatabaseTranscriptStore
from tasks_app.history.events.reading import Events, past_actions
from tasks_app.models import (
    Decision,
    EventKind,
    Outcome,
    Question,
    QuestionKind,
    Reason,
    Review,
    Run,
    Step,
    Transition,
    Verdict,
    paths,
)
from tasks_app.prompting.feedback import (
    Feedback,
    after_rehearsal_feedback,
    lost_work_feedback,
    threshold_feedback,
)
from tasks_app.prompting.replay import replay, with_feedback
from tasks_app.services.decisions.content import decisions_for


@dataclass(frozen=True)
class NextRun:
    """A run before it starts: with `resume` in the session of an earlier run, otherwise in a new one.

    `decisions` are those that its agent can read, the most specific first.
    `answers` are the ids of the questions whose answers it hands in, `answered` the calls whose results its
    session holds since an earlier run, although the model may not have read them. `reviews` are the ids of
    the reviews that it hands over. `turned_down` maps each call that a human refused to a sentence that says
    who refused it. While `planning` the agent may only read. `note` is for the log.
    """

    reason: Reason
    session_id: str
    prompt: str | None
    resume: bool = False
    permissions: dict[str, CallPermission] = field(default_factory=dict)
    cost_before: float = 0.0
    decisions: Sequence[Decision] = ()
    answers: tuple[int, ...] = ()
    answered: tuple[str, ...] = ()
    reviews: tuple[int, ...] = ()
    turned_down: dict[str, str] = field(default_factory=dict)
    planning: bool = False
    note: str = ""


#: Outcomes of runs whose session is not resumed.
_SESSION_GIVEN_UP = (Outcome.LOST, Outcome.UNDELIVERED)
#: Why a run follows one that asked for an approval, by the verdict.
_AFTER_VERDICT: dict[str, Reason] = {Verdict.APPROVED: Reason.APPROVED, Verdict.DENIED: Reason.DENIED}
#: Outcomes of runs that stored at least the prompt of their session.
_HAS_A_SESSION = (Outcome.ASKED, Outcome.FINISHED, Outcome.LIMIT)


def next_run(step: Step, runs: Sequence[Run]) -> NextRun:
    """Return the step's first run, or the run that follows from the end of the last of its current `runs`."""
    decisions = decisions_for(step)
    if not runs:
        return replace(_first_run(step, decisions), decisions=decisions)
    last = runs[-1]
    if any(run.data_dir != paths.worker_data_dir_id() for run in runs):
        write_answers_again(step)
    transcript, damage = _stored_session(last)
    if last.outcome == Outcome.UNDELIVERED:
        transcript = {}  # the model does not read what it holds
    open_answers = undelivered(step, last, transcript)
    reviews = undelivered_reviews(step, last, transcript)
    planned = _following_run(step, last, transcript, open_answers, reviews, decisions)
    if not planned.resume:
        planned = replace(planned, note=_why_replayed(last, transcript, damage))
    else:
        # Calls with answers in the session, but no word of the model since: their run died there.
        calls = step.questions.of_agents().settled().values_list("tool_use_id", flat=True)
        results = (CallResult.GOOD, CallResult.ERROR)
        answered = [call for call in calls if result_in(transcript, call) in results]
        unread = tuple(call for call in answered if not was_read(transcript, call))
        planned = replace(planned, answered=unread)
    answers = tuple(question.pk for question in open_answers)
    turned_down = {
        question.tool_use_id: f"{question.outcome.lower()} by {answered_by(question)}"
        for question in open_answers
        if question.is_turned_down
    }
    return replace(
        planned, answers=answers, turned_down=turned_down, planning=_is_planning(step, planned),
        decisions=decisions,
    )  # fmt: skip


def _is_planning(step: Step, planned: NextRun) -> bool:
    """Return whether the run begins in plan mode.

    That holds until a plan is approved. The run that hands in the approval still begins in plan mode, because
    its session waits at the call that ends the planning.
    """
    if not step_from_json(step.config).plan_approval:
        return False
    approved = approvals_that_count(step).values_list("tool_use_id", flat=True)
    return set(approved) <= set(planned.permissions)


def _first_run(step: Step, decisions: Sequence[Decision]) -> NextRun:
    """Return a run in a new session. After a retry its prompt says that there was an earlier attempt."""
    planning = step_from_json(step.config).plan_approval
    prompt, session = step_prompt(step, decisions), str(uuid.uuid4())
    granted = answers_to_portal(step)
    answers = tuple(question.pk for question in granted)
    if step.first_run == 1:
        if notes := joined(portal_notes(granted), messages_note(step)):
            prompt = with_feedback(prompt, notes)
        return NextRun(Reason.FIRST, session, prompt, planning=planning, answers=answers)
    reviews = tuple(step.reviews.undelivered().select_related("author"))
    put_back = step.kept_from == step.first_run
    if reviews:
        feedback, reason = request_text(step, reviews), Reason.REVIEW
    elif _follows_review(step):
        feedback, reason = rerun_text(step), Reason.REVIEW
    else:
        feedback, reason = retry_text(step, put_back=put_back), Reason.RETRY
    prompt = with_feedback(prompt, joined(feedback, portal_notes(granted), messages_note(step)))
    return NextRun(reason, session, prompt, planning=planning, answers=answers, reviews=_ids(reviews))


def _follows_review(step: Step) -> bool:
    """Return whether an earlier step was asked to change the code since this one last ran."""
    last = step.runs.filter(number__lt=step.first_run).last()
    requests = Review.objects.filter(task=step.task_id, step__position__lt=step.position)
    return last is not None and requests.filter(handed_in__pk__gt=last.pk).exists()


def _ids(reviews: Sequence[Review]) -> tuple[int, ...]:
    return tuple(review.pk for review in reviews)


def _following_run(
    step: Step,
    last: Run,
    transcript: Transcript,
    open_answers: Sequence[Question],
    reviews: Sequence[Review],
    decisions: Sequence[Decision],
) -> NextRun:
    granted = [question for question in open_answers if question.is_about_cost or question.reopens_id]
    open_answers = [question for question in open_answers if question not in granted]
    # The end of a run whose session was given up says nothing: the run before it is why we go on.
    decisive = last
    if last.outcome in _SESSION_GIVEN_UP:
        decisive = step.current_runs.exclude(outcome__in=_SESSION_GIVEN_UP).last() or last
    reason = _reason_to_run(decisive, reviews)
    if reason == Reason.CHECK_FAILED and has_unread_question(step, decisive):
        reason = Reason.UNREAD_QUESTION
    if any(question.reopens_id for question in granted):
        reason = Reason.ANSWER
    must_begin_anew = not transcript or decisive != last or cannot_continue(last) or _has_other_model(last)
    if must_begin_anew or step.task.resume == "replay":
        actions, requests = past_actions(step), requests_of_current_runs(step)
        feedback = feedback_of(step, decisive, open_answers, requests)
        if decisive.outcome == Outcome.INTERRUPTED and not (actions or open_answers or requests):
            feedback = Feedback("")  # it was stopped before its agent did anything
        if last.rehearsed and _has_other_model(last):
            feedback = joined(after_rehearsal_feedback(), feedback)
        if not any(one.is_about_cost for one in granted):
            granted += early_end_in_force(step)
        granted_note = portal_notes(granted)
        later, lost_work = later_steps_text(step, resumed=False), _lost_work_note(step, last)
        feedback = joined(feedback, later, lost_work, granted_note, messages_note(step))
        prompt = replay(step_prompt(step, decisions), actions=actions, feedback=feedback)  # H9
        return NextRun(reason, str(uuid.uuid4()), prompt, reviews=_ids(reviews))
    session = str(last.session_id)
    reported = last.cost_usd if last.reported_cost_usd is None else last.reported_cost_usd
    cost = cost_before(last) + reported
    notes = (_threshold_note(step, last), _lost_work_note(step, last), portal_notes(granted))
    note = joined(
        *notes,
        lost_remarks_note(last, transcript),
        decisions_note(step, last, transcript),
        messages_note(step, last, transcript),
    )
    waits_at = deferred_call(transcript)
    permissions = permissions_of(
        step, last, open_answers, waits_at=waits_at, deferred=deferred_calls(transcript), note=note
    )
    if permissions or (waits_at and not has_question(step, waits_at)):
        # Without a permission the gate sees the call once more, and then it is asked about.
        return NextRun(reason, session, None, resume=True, permissions=permissions, cost_before=cost)
    later = later_steps_text(step, resumed=True)
    prompt = joined(feedback_of(step, last, open_answers, reviews), later, note)
    return NextRun(reason, session, prompt, resume=True, cost_before=cost, reviews=_ids(reviews))


def _has_other_model(run: Run) -> bool:
    """Return whether a script played the model in the run's session and a real one goes on, or vice versa."""
    return run.rehearsed is not None and run.rehearsed != settings.ENVIRONMENT.rehearsal


def cannot_continue(run: Run) -> bool:
    """Return whether the run's session would end the same way again: too long for the model, or refused."""
    if run.outcome != Outcome.FAILED:
        return False
    end = Events(Q(run=run)).of_kinds([EventKind.RESULT]).last()
    return end is not None and end.payload.get("new_session") is True


def _why_replayed(last: Run, transcript: Transcript, damage: str) -> str:
    """Return the log's note on why the session is not resumed, or "" if that was intended."""
    if _has_other_model(last):
        played = "was a rehearsal: a script played the model" if last.rehearsed else "had a real model"
        now = "now a real model goes on" if last.rehearsed else "now a script plays it (rehearsal)"
        return f"Run {last.number} {played}, and {now}. A new session begins with what was done so far."
    if last.outcome in _SESSION_GIVEN_UP or cannot_continue(last):
        damage = last.error.partition("\n")[0]
    elif not damage and not transcript and last.outcome in _HAS_A_SESSION:
        damage = "nothing of it is stored"
    if not damage:
        return ""
    return (
        f"The session of run {last.number} cannot be resumed ({damage}). "
        "A new session begins with what was done so far."
    )


def _threshold_note(step: Step, last: Run) -> str:
    """Return what the session must be told about a changed threshold, or "" if it knows the current one.

    Crashed runs do not count: they may have died before they read their prompt.
    """
    of_session = step.runs.filter(session_id=last.session_id, threshold__isnull=False)
    informed = of_session.exclude(outcome=Outcome.CRASHED).order_by("-number")
    known = informed.values_list("threshold", flat=True).first()
    if known is None or known == step.task.threshold:
        return ""
    has_tool = halting_tools(last).ask
    return threshold_feedback(step.task.threshold, instructions=threshold_text(step.task), has_tool=has_tool)


def _lost_work_note(step: Step, last: Run) -> str:
    """Return what the agent must be told if its files are older than it knows, or ""."""
    if last.head_commit or last.data_dir == paths.worker_data_dir_id():
        return ""
    return lost_work_feedback(step.task.head_commit or step.task.base_commit)


def halting_tools(run: Run) -> HaltingTools:
    """Return the tools for halting that the run's session began with; see `HaltingTools`."""
    began_with = run.threshold
    if run.resumed:
        runs = run.step.runs.filter(session_id=run.session_id, threshold__isnull=False)
        began_with = runs.order_by("number").values_list("threshold", flat=True).first()
    threshold = run.step.task.threshold if began_with is None else began_with
    return HaltingTools(ask=threshold > 0, plan=step_from_json(run.step.config).plan_approval)


def transcript_of(run: Run) -> Transcript:
    """Return the stored session of the run; empty if nothing is stored, or if it is damaged."""
    return _stored_session(run)[0]


def _stored_session(run: Run) -> tuple[Transcript, str]:
    """Return the session and a description of its damage. A damaged session counts as none (H9)."""
    cwd = paths.placement().inside(paths.workspace(run.step.task).path)
    try:
        return stored_transcript(DatabaseTranscriptStore(), cwd=cwd, session_id=str(run.session_id)), ""
    except TranscriptDamaged as damage:
        return {}, str(damage)


def undelivered(step: Step, last: Run, transcript: Transcript) -> list[Question]:
    """Return the answered questions whose answers the agent has not received, and mark the others.

    A worker may have died just after it handed an answer over. Then the session holds the answer, as a result
    or in its prompt, and it must not be handed over again.
    """
    of_current_runs = step.questions.filter(run__number__gte=step.first_run)
    # The portal's questions have the task's last run, which may be another step's.
    counted = of_current_runs | step.questions.about_costs() | step.questions.asked_again()
    settled = counted.settled().filter(delivered_at=None)
    waiting = list(
        settled.select_related("answered_by", "applied", "reopens__applied", "reopens__taken_back_by", "run")
    )
    with_result = []
    for question in waiting:
        result = result_in(transcript, question.tool_use_id)
        # A verdict is handed over with a failed call, too.
        if result == CallResult.GOOD or (question.verdict and result == CallResult.ERROR):
            with_result.append(question)
    runs = {question.run_id for question in with_result}
    # A question of the portal in a run has no result of its own: its answer is a note beside a result.
    handed_in = {question.handed_in_id for question in with_result} - {None}
    in_prompt = last.prompt and has_prompt(transcript, last.prompt)
    received = set()
    for question in waiting:
        has_result = question.run_id in runs
        if question.reopens_id:
            has_result = question.handed_in_id in handed_in
        if has_result or (in_prompt and question.handed_in_id == last.pk):
            received.add(question.pk)
    step.questions.filter(pk__in=received).update(delivered_at=timezone.now())
    return [question for question in waiting if question.pk not in received]


def _reason_to_run(last: Run, reviews: Sequence[Review]) -> Reason:
    if last.outcome == Outcome.FINISHED:
        return Reason.REVIEW if reviews else Reason.CHECK_FAILED
    if last.outcome == Outcome.ASKED:
        asked = last.questions.first()
        if asked is None:
            return Reason.SET_ASIDE
        if asked.kind == QuestionKind.APPROVAL:
            return _AFTER_VERDICT.get(asked.verdict, Reason.APPROVAL)
        if asked.is_unanswered:
            return Reason.NO_ANSWER
        return Reason.PLAN if asked.kind == QuestionKind.PLAN else Reason.ANSWER
    if last.outcome == Outcome.LIMIT:
        return Reason.LIMIT
    if last.outcome == Outcome.FAILED:
        return Reason.RETRY
    cancelled = Transition.objects.filter(task=last.step.task_id, target=Phase.CANCELLED)
    if cancelled.filter(at__gte=last.started_at).exists():
        return Reason.RESUMED
    return Reason.CRASH


def cost_before(run: Run) -> float:
    """Return the cost of the session's earlier runs as the agent reported it: it reports session totals."""
    rows = Run.objects.filter(step=run.step_id, session_id=run.session_id, number__lt=run.number)
    return float(rows.aggregate(total=Sum(Coalesce("reported_cost_usd", "cost_usd")))["total"] or 0.0)


def timeout_of(step: Step) -> float:
    """Return the timeout of one run of the step, in seconds."""
    return float(step_from_json(step.config).timeout or STEP_SECONDS)
