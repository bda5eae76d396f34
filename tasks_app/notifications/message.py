"""The content of a notification, made from the current rows when it is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone

from tasks_app.absolute_urls import absolute_url
from tasks_app.core.ladder import ENDINGS, RungAction
from tasks_app.core.phases import Phase
from tasks_app.core.text import shortened, storable_text, strip_controls
from tasks_app.models import (
    EVENT_TYPE_OF,
    Asked,
    AskedBy,
    Delivery,
    EventType,
    Publication,
    Question,
    QuestionKind,
    Review,
    Rung,
    RungOutcome,
    Sequence,
    Task,
    ThreadComment,
    Transition,
)

_MAX_HEADLINE = 300
_MAX_FAILURE = 2000

#: Phases of the step that a notification is about.
_STOPPED = (Phase.WAITING_FOR_INPUT, Phase.FAILED, Phase.CANCELLED)


class NotSent(Exception):
    """A delivery failed. The message is for people and has no secrets. `permanent`: do not retry."""

    def __init__(self, message: str, *, status: int | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.permanent = permanent


@dataclass(frozen=True)
class OpenQuestion:
    """An open question in a message."""

    id: int
    kind: str
    title: str
    text: str
    url: str


@dataclass(frozen=True)
class Message:
    """The content of one notification. Agents' texts are truncated here and made safe by each medium."""

    key: str
    event_type: EventType
    at: datetime
    project: str
    project_id: int | None
    url: str
    sequence: str = ""
    sequence_id: int | None = None
    task: str = ""
    task_id: int | None = None
    step: str = ""
    questions: list[OpenQuestion] = field(default_factory=list)
    failure: str = ""
    actor: str = ""
    cause: str = ""
    verdict: str = ""
    finished_early: bool = False
    #: Why a question comes again, such as “Reminder”.
    again: str = ""

    @property
    def path(self) -> str:
        """`project › task › step`, without missing parts."""
        parts = (self.project, self.task, self.step)
        return " › ".join(one_line(part, 120) for part in parts if part)

    @property
    def headline(self) -> str:
        """The subject in one line."""
        if self.event_type == EventType.QUESTION:
            if not self.questions:
                return "New question"
            first, *more = self.questions
            headline = one_line(": ".join(filter(None, (self.again, first.title))), _MAX_HEADLINE)
            if more:
                return f"{headline} (and {len(more)} more)"
            return headline
        if self.sequence:
            return f"Failed: the sequence {one_line(self.sequence, 200)}"
        task, actor = one_line(self.task, 200), one_line(self.actor, 60) or "somebody"
        by = f" by {actor}"
        if self.cause and not self.actor:
            by = f", {one_line(self.cause, 200)}"
        return {
            EventType.FAILED: f"Failed: {task}",
            EventType.DONE: f"Finished early: {task}" if self.finished_early else f"Done: {task}",
            EventType.CANCELLED: f"Cancelled{by}: {task}",
            EventType.NOT_PUBLISHED: f"Not published: {task}",
            EventType.UNANSWERED: one_line(f"Nobody answered: {self.cause}", _MAX_HEADLINE),
            EventType.TOKEN_SEEN: one_line(self.cause, _MAX_HEADLINE),
            EventType.REVIEWED: f"{actor} {self.verdict}: {task}",
        }.get(self.event_type, "Test: notifications from Cat Herder arrive here.")

    def as_json(self) -> dict[str, Any]:
        """Return the body of a webhook."""
        project: dict[str, Any] = {"id": self.project_id, "name": self.project}
        sequence: dict[str, Any] = {"id": self.sequence_id, "folder": self.sequence}
        task: dict[str, Any] = {"id": self.task_id, "title": self.task}
        return {
            "id": self.key,
            "event": self.event_type.value,
            "at": self.at.isoformat(),
            "project": project if self.project_id else None,
            "sequence": sequence if self.sequence_id else None,
            "task": task if self.task_id else None,
            "step": self.step or None,
            "questions": [vars(question) for question in self.questions],
            "again": self.again or None,
            "failure": self.failure or None,
            "by": self.actor or None,
            "headline": self.headline,
            "url": self.url,
        }


def message_of(delivery: Delivery) -> Message:
    """Return the message of a delivery, from the rows as they are now."""
    if review := delivery.review:
        return _about(
            delivery,
            review.task,
            EventType.REVIEWED,
            at=review.sent_at or timezone.now(),
            url=_url_of_diff(review.task),
            actor=review.author.shown_name,
            verdict=review.get_verdict_display(),
        )
    if publication := delivery.publication:
        return _about(
            delivery,
            publication.task,
            EventType.NOT_PUBLISHED,
            at=publication.ended_at or timezone.now(),
            url=f"{task_url(publication.task_id)}#publishing-title",
            failure=shortened(publication.fault or publication.answer, _MAX_FAILURE),
            actor=publication.asked_by,
        )
    if reply := delivery.reply:
        return _about(
            delivery,
            reply.thread.task,
            EventType.REVIEWED,
            at=reply.at,
            url=_url_of_diff(reply.thread.task),
            actor=reply.by,
            verdict="replied in a review",
        )
    if rung := delivery.rung:
        question = open_question(rung.question)
        if rung.action in ENDINGS:
            return _about(
                delivery,
                rung.question.task,
                EventType.UNANSWERED,
                at=rung.done_at or timezone.now(),
                url=absolute_url(reverse("question", args=[rung.question_id])),
                step=rung.question.step.name,
                cause=rung_headline(rung),
            )
        return _about(
            delivery,
            rung.question.task,
            EventType.QUESTION,
            at=rung.done_at or timezone.now(),
            url=question.url,
            questions=[question],
            step=rung.question.step.name,
            again=_again(rung),
        )
    if asked := delivery.asked:
        return _about(
            delivery,
            asked.question.task,
            EventType.QUESTION,
            at=asked.at,
            url=absolute_url(reverse("question", args=[asked.question_id])),
            step=asked.question.step.name,
            questions=[open_question(asked.question)],
            again=why_asked(asked),
        )
    if notice := delivery.notice:
        return Message(  # the owner of the token may not see the project
            key=str(delivery.key),
            event_type=EventType.TOKEN_SEEN,
            at=notice.at,
            project="",
            project_id=None,
            url=absolute_url(reverse("me_tokens")),
            cause=notice.headline,
        )
    if delivery.transition is None:
        return _test_message(delivery)
    return _transition_message(delivery, delivery.transition)


def _transition_message(delivery: Delivery, transition: Transition) -> Message:
    task, event_type = transition.task, EventType(delivery.event_type)
    values: dict[str, Any] = {"url": task_url(task.pk)}
    sequence = stopped_sequence(transition)
    if sequence:
        values |= {"url": sequence_url(sequence.pk), "sequence": sequence.folder, "sequence_id": sequence.pk}
    if event_type == EventType.QUESTION and (questions := _open_questions(task)):
        values |= {"url": questions[0].url, "questions": questions}
    if event_type == EventType.FAILED:
        values["failure"] = shortened((sequence or task).failure, _MAX_FAILURE)
    if event_type == EventType.CANCELLED:
        for row in task.pull_requests.all():
            if row.reason_to_cancel == transition.reason:  # such as “merged by ann on GitHub”
                values["cause"] = row.end_in_words[:1].lower() + row.end_in_words[1:]
    if transition.target != Phase.DONE:
        values["step"] = step_of(task)
    if transition.actor:
        values["actor"] = transition.actor.shown_name
    return _about(delivery, task, event_type, at=transition.at, **values)


def _about(delivery: Delivery, task: Task, event_type: EventType, **values: Any) -> Message:
    """Return a message about a task and the values that are its own."""
    return Message(
        key=str(delivery.key),
        event_type=event_type,
        project=task.project.name,
        project_id=task.project_id,
        task=task.title,
        task_id=task.pk,
        finished_early=event_type == EventType.DONE and task.ended_early,
        **values,
    )


def _url_of_diff(task: Task) -> str:
    return absolute_url(reverse("task_diff", args=[task.pk]))


def _test_message(delivery: Delivery) -> Message:
    name, pk, url = "", None, settings_path()
    if delivery.target and (project := delivery.target.project):
        name, pk, url = project.name, project.pk, reverse("project_notifications", args=[project.pk])
    return Message(
        key=str(delivery.key),
        event_type=EventType.TEST,
        at=timezone.now(),
        project=name,
        project_id=pk,
        url=absolute_url(url),
    )


def is_over(transition: Transition) -> bool:
    """Return whether its question was answered meanwhile, so that no notification is needed."""
    if transition.target != Phase.WAITING_FOR_INPUT:
        return False
    later = Transition.objects.filter(task=transition.task_id, step=None, pk__gt=transition.pk)
    return later.exists() or not Question.objects.open().filter(task=transition.task_id).exists()


def event_type_of(transition: Transition) -> EventType:
    """Return the event type; a done task whose sequence failed afterwards counts as a failure."""
    if stopped_sequence(transition):
        return EventType.FAILED
    return EVENT_TYPE_OF[transition.target]


def stopped_sequence(transition: Transition) -> Sequence | None:
    """Return the sequence that failed after this task was done, because its next file is invalid."""
    sequence = transition.task.sequence
    if transition.target != Phase.DONE or sequence is None or sequence.phase != Phase.FAILED:
        return None
    if sequence.tasks.filter(pk__gt=transition.task_id).exists():
        return None
    return sequence


def headline_of(transition: Transition, question: Question | None) -> str:
    """Return the headline of a notice: the open question, or why the task or its sequence failed."""
    text = str(question.title) if question else ""
    if event_type_of(transition) == EventType.FAILED:
        failure = (stopped_sequence(transition) or transition.task).failure
        text, _, output = failure.strip().partition("\n")
        if last := output.rstrip().rpartition("\n")[2].strip():
            text = f"{one_line(text, _MAX_HEADLINE // 2).rstrip('.:')}: {last}"
    return storable_text(one_line(text, _MAX_HEADLINE))


def review_headline(review: Review) -> str:
    """Return the headline of a notice about a review: the author, the verdict and the review's text."""
    text = f"{review.author.shown_name} {review.get_verdict_display()}"
    if review.body:
        text += f": {review.body}"
    return storable_text(one_line(text, _MAX_HEADLINE))


def publication_headline(publication: Publication) -> str:
    """Return the headline of a notice about a publication that failed: why it did."""
    text = publication.fault or f"Not published: {publication.answer}"
    return storable_text(one_line(text, _MAX_HEADLINE))


def reply_headline(reply: ThreadComment, count: int) -> str:
    """Return the headline of a notice about `count` replies of one user, of which `reply` is the first."""
    replied = "replied" if count == 1 else f"replied {count} times"
    return storable_text(one_line(f"{reply.by} {replied}: {reply.text}", _MAX_HEADLINE))


def step_of(task: Task) -> str:
    """Return the name of the step at which the task stopped."""
    step = task.steps.filter(phase__in=_STOPPED).order_by("position").last()
    return step.name if step else ""


def why_asked(asked: Asked) -> str:
    """Return why somebody is asked by name, with the note of who handed it over; or that it ended."""
    if asked.ended_at:
        return "No longer asked of you"
    words = "Asked of you"
    if asked.by and asked.asked_by == AskedBy.HAND_OVER:
        words = f"{asked.by.shown_name} hands this over to you"
    elif asked.by and asked.asked_by == AskedBy.OPINION:
        words = f"{asked.by.shown_name} wants your opinion"
    if asked.note:
        return f"{words} ({one_line(asked.note, 200)})"
    return words


def asked_headline(asked: Asked) -> str:
    """Return the headline of a notice that somebody is asked by name, or no longer."""
    return storable_text(one_line(f"{why_asked(asked)}: {asked.question.title}", _MAX_HEADLINE))


def _open_questions(task: Task) -> list[OpenQuestion]:
    return [open_question(question) for question in task.questions.open().order_by("number")[:20]]


def open_question(question: Question) -> OpenQuestion:
    return OpenQuestion(
        id=question.pk,
        kind=QuestionKind(question.kind).value,
        title=shortened(str(question.title), _MAX_HEADLINE),
        text=shortened(text_of_question(question), _MAX_FAILURE),
        url=task_url(question.task_id) + f"#question-{question.pk}",
    )


def _again(rung: Rung) -> str:
    """Return why the question comes again. What failed before is said too."""
    before = rung.question.rungs.filter(position=rung.position - 1).first()
    if before and before.outcome == RungOutcome.UNREACHED:
        return "Nobody was reached"
    if rung.action == RungAction.REMIND:
        return "Reminder"
    return "Nobody has answered"


def rung_headline(rung: Rung) -> str:
    """Return the headline of a notice about a rung: why the question comes again or ended, and its title."""
    if rung.action in ENDINGS:
        question = rung.question
        came = f"{question.answerer} left it to the agent"
        if question.answers:
            came = f"{question.answerer} took “{shortened(question.answer_text, 100)}”"
        return storable_text(one_line(f"{question.title} – {came}", _MAX_HEADLINE))
    return storable_text(one_line(f"{_again(rung)}: {rung.question.title}", _MAX_HEADLINE))


def text_of_question(question: Question) -> str:
    """Return all that is asked; of an approval the whole command and the rule as well."""
    lines = [str(item["question"]) for item in question.items]
    if question.long_command:
        lines.append(question.long_command)
    if question.rule:
        lines.append(f"Rule: {question.rule}")
    return "\n".join(lines)


def task_url(task_id: int) -> str:
    return absolute_url(reverse("task", args=[task_id]))


def sequence_url(sequence_id: int) -> str:
    return absolute_url(reverse("sequence", args=[sequence_id]))


def settings_path() -> str:
    return reverse("me_notifications")


# Texts of agents and repositories, made safe for e-mail and chat.


_JOINER = "\u2060"
#: Mentions, links and markup of chat services, with harmless replacements.
_MARKUP = [
    (re.compile("@"), f"@{_JOINER}"),
    (re.compile("<"), "‹"),
    (re.compile(">"), "›"),
    (re.compile("://"), f":{_JOINER}//"),
    (re.compile(r"\]\("), f"]{_JOINER}("),
    (re.compile(r"(?<=\w)\.(?=\w)"), f".{_JOINER}"),
    (re.compile("([*_~`|])"), rf"{_JOINER}\1{_JOINER}"),
]


def one_line(text: str, limit: int) -> str:
    """Return the text in one line of at most `limit` characters, without invisible characters."""
    return shortened(strip_controls(text[: 4 * limit], one_line=True), limit)


def to_lines(text: str, limit: int) -> list[str]:
    """Return the lines of a text of at most `limit` characters, without invisible characters."""
    found = [one_line(line, limit) for line in shortened(text, limit).splitlines()]
    return [line for line in found if line]


def neutralise_markup(text: str) -> str:
    """Neutralise mentions, links and markup of chat services."""
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    return text.lstrip("#-+/!")
