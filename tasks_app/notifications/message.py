"""What is said about an occasion: made from the rows when it is sent, so that it is true then."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable_text
from tasks_app.models import (
    OCCASION_OF,
    Delivery,
    Occasion,
    Question,
    QuestionKind,
    Sequence,
    Target,
    Task,
    Transition,
)
from tasks_app.notifications.plain_text import cut, one_line

_HEADLINE = 300
_FAILURE = 2000

#: The step that an occasion is about has one of these phases.
_STOPPED = (Phase.WAITING_FOR_INPUT, Phase.FAILED, Phase.CANCELLED)


@dataclass(frozen=True)
class Asked:
    """A question that waits."""

    id: int
    kind: str
    text: str
    url: str


@dataclass(frozen=True)
class Message:
    """One occasion in words. Texts of agents are bounded here and made harmless by each medium."""

    key: str
    occasion: Occasion
    at: datetime
    project: str
    project_id: int | None
    url: str
    sequence: str = ""
    sequence_id: int | None = None
    task: str = ""
    task_id: int | None = None
    step: str = ""
    questions: list[Asked] = field(default_factory=list)
    failure: str = ""
    actor: str = ""

    @property
    def place(self) -> str:
        """project › task › step, as far as there are any."""
        parts = (self.project, self.task, self.step)
        return " › ".join(one_line(part, 120) for part in parts if part)

    @property
    def headline(self) -> str:
        """What it is about in one line."""
        if self.occasion == Occasion.QUESTION:
            more = len(self.questions) - 1
            first = one_line(self.questions[0].text, _HEADLINE) if self.questions else "New question"
            return f"{first} (and {more} more)" if more > 0 else first
        if self.sequence:
            return f"Failed: the sequence {one_line(self.sequence, 200)}"
        task, actor = one_line(self.task, 200), one_line(self.actor, 60) or "somebody"
        return {
            Occasion.FAILED: f"Failed: {task}",
            Occasion.DONE: f"Done: {task}",
            Occasion.CANCELLED: f"Cancelled by {actor}: {task}",
        }.get(self.occasion, "Test: notifications from Cat Herder arrive here.")

    def as_json(self) -> dict[str, Any]:
        """The body of a webhook."""
        questions = [vars(question) for question in self.questions]
        sequence = {"id": self.sequence_id, "folder": self.sequence} if self.sequence_id else None
        task = {"id": self.task_id, "title": self.task} if self.task_id else None
        return {
            "id": self.key,
            "event": self.occasion.value,
            "at": self.at.isoformat(),
            "project": {"id": self.project_id, "name": self.project} if self.project_id else None,
            "sequence": sequence,
            "task": task,
            "step": self.step or None,
            "questions": questions,
            "failure": self.failure or None,
            "by": self.actor or None,
            "headline": self.headline,
            "url": self.url,
        }


def message_of(delivery: Delivery) -> Message:
    happened = delivery.transition
    if happened is None:
        return _test(delivery)
    task, occasion = happened.task, Occasion(delivery.occasion)
    asked = _asked(task) if occasion == Occasion.QUESTION else []
    sequence = stopped_sequence(happened)
    return Message(
        key=str(delivery.key),
        occasion=occasion,
        at=happened.at,
        project=task.project.name,
        project_id=task.project_id,
        url=asked[0].url if asked else sequence_url(sequence.pk) if sequence else task_url(task.pk),
        sequence=sequence.folder if sequence else "",
        sequence_id=sequence.pk if sequence else None,
        task=task.title,
        task_id=task.pk,
        step=step_of(task) if happened.target != Phase.DONE else "",
        questions=asked,
        failure=cut((sequence or task).failure, _FAILURE) if occasion == Occasion.FAILED else "",
        actor=happened.actor.shown_name if happened.actor else "",
    )


def _test(delivery: Delivery) -> Message:
    target: Target | None = delivery.target
    project = target.project if target else None
    return Message(
        key=str(delivery.key),
        occasion=Occasion.TEST,
        at=timezone.now(),
        project=project.name if project else "",
        project_id=project.pk if project else None,
        url=absolute(reverse("project_notifications", args=[project.pk]) if project else settings_path()),
    )


def is_over(happened: Transition) -> bool:
    """Whether a question was answered meanwhile: then nobody needs to hear of it."""
    if happened.target != Phase.WAITING_FOR_INPUT:
        return False
    later = Transition.objects.filter(task=happened.task_id, step=None, pk__gt=happened.pk)
    return later.exists() or not Question.objects.open().filter(task=happened.task_id).exists()


def occasion_of(happened: Transition) -> Occasion:
    """What of it is told. If a task is done and its sequence cannot go on, that is the news."""
    return Occasion.FAILED if stopped_sequence(happened) else OCCASION_OF[happened.target]


def stopped_sequence(happened: Transition) -> Sequence | None:
    """The sequence that could not go on when this task of it was done: its next file cannot be used."""
    sequence = happened.task.sequence
    if happened.target != Phase.DONE or sequence is None or sequence.phase != Phase.FAILED:
        return None
    return None if sequence.tasks.filter(pk__gt=happened.task_id).exists() else sequence


def headline_of(happened: Transition) -> str:
    """What stands in the page: the question, or why the task or its sequence failed."""
    text, task = "", happened.task
    if happened.target == Phase.WAITING_FOR_INPUT:
        first = task.questions.open().first()
        text = first.headline if first else ""
    elif occasion_of(happened) == Occasion.FAILED:
        text = (stopped_sequence(happened) or task).failure
    return storable_text(one_line(text, _HEADLINE))


def step_of(task: Task) -> str:
    """The step at which the task stopped."""
    step = task.steps.filter(phase__in=_STOPPED).order_by("position").last()
    return step.name if step else ""


def _asked(task: Task) -> list[Asked]:
    return [
        Asked(
            id=question.pk,
            kind=QuestionKind(question.kind).value,
            text=cut(question.headline, _FAILURE),
            url=task_url(task.pk) + f"#question-{question.pk}",
        )
        for question in task.questions.open().order_by("number")[:20]
    ]


def task_url(task_id: int) -> str:
    return absolute(reverse("task", args=[task_id]))


def sequence_url(sequence_id: int) -> str:
    return absolute(reverse("sequence", args=[sequence_id]))


def settings_path() -> str:
    return reverse("me_notifications")


def absolute(path: str) -> str:
    """The address of a page as people outside reach it."""
    return f"{settings.ENVIRONMENT.address}{path}"


def shown_to(request: HttpRequest, path: str) -> str:
    """The address of a page for who asks now, who may have reached the portal by another name than it has."""
    return absolute(path) if settings.ENVIRONMENT.url else request.build_absolute_uri(path)
