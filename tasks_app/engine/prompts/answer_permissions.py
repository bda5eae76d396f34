"""Answers as permissions of the gate, for the call at which a session waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from django.db.models import Q

from tasks_app.agent.call_permissions import (
    AnswersFolder,
    GivenAnswer,
    not_made_note,
    permission_for,
    refuse_as_set_aside,
    refuse_as_uncertain,
)
from tasks_app.agent.port import CallPermission
from tasks_app.core.types import Ask, AskItem, AskKind, AskWay, Option
from tasks_app.engine.prompts.run_feedback import answered_by, applied_note, joined
from tasks_app.engine.prompts.values import ended_in_words
from tasks_app.history.events.lines import summarise
from tasks_app.history.events.reading import Events
from tasks_app.models import EventKind, Outcome, Question, QuestionKind, Run, Step, Verdict, paths


def permissions_of(
    step: Step,
    last: Run,
    answers: Sequence[Question],
    *,
    waits_at: str,
    deferred: Sequence[str] = (),
    note: str = "",
) -> dict[str, CallPermission]:
    """Return the gate's permission for the call at which the session waits; none if it waits at no call.

    `deferred` are all calls of the session without a result. The portal's own `note` is added to the answer,
    because such a run has no prompt.
    """
    main = next((question for question in answers if question.tool_use_id == waits_at), None)
    folder, note = _answers_folder(step), joined(applied_note(answers), note)
    others = [_given_answer(question) for question in answers if question is not main]
    unasked = [call for call in deferred if call != waits_at and not has_question(step, call)]
    not_made = _calls_in_words(last, unasked)
    if main is None:
        was_set_aside = waits_at and last.outcome == Outcome.ASKED and not has_question(step, waits_at)
        if not was_set_aside:
            return {}
        return {waits_at: refuse_as_set_aside(others, folder=folder, not_made=not_made, note=note)}
    if main.kind == QuestionKind.APPROVAL and main.verdict == Verdict.APPROVED and main.handed_in_id:
        return {waits_at: refuse_as_uncertain(note)}
    note = joined(note, not_made_note(not_made))
    return {waits_at: permission_for(_given_answer(main), others, folder=folder, note=note)}


def _calls_in_words(run: Run, calls: Sequence[str]) -> list[str]:
    """Return one line for each of the calls that the run has made."""
    found = (Events(Q(run=run)).of_kinds([EventKind.TOOL_USE]).first_with("id", call) for call in calls)
    return [
        f"`{summarise(str(event.payload.get('name', '')), event.payload.get('input') or {})}`"
        for event in found
        if event
    ]


def write_answers_again(step: Step) -> None:
    """Write the files of long answers, which the session names: some were given on another host."""
    folder = _answers_folder(step)
    for question in step.questions.of_agents().settled().select_related("answered_by", "applied", "run"):
        permission_for(_given_answer(question), (), folder=folder)


def _answers_folder(step: Step) -> AnswersFolder:
    folder = paths.answers_dir(step.task)
    folder.mkdir(parents=True, exist_ok=True)
    return AnswersFolder(folder, paths.placement())


def _given_answer(question: Question) -> GivenAnswer:
    return GivenAnswer(
        ask_of(question),
        question.answers_in_order,
        question.notes,
        name=f"question-{question.number}",
        by=answered_by(question),
        person=question.answered_by.shown_name if question.answered_by else "",
        dismissed=question.is_dismissed,
        ended=ended_in_words(question),
        approved=question.verdict == Verdict.APPROVED,
    )


def ask_of(question: Question) -> Ask:
    """Return the ask from which the question's row was made."""
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


def has_question(step: Step, call: str) -> bool:
    """Return whether a tool call of the step became a question."""
    return step.questions.filter(tool_use_id=call).exists()
