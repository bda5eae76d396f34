"""Who a question is put to, and groups of members who can be asked together."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Exists, OuterRef, Q

from tasks_app.models.project import Project
from tasks_app.models.question import Question
from tasks_app.models.question_kinds import QuestionState
from tasks_app.models.user import User


class MemberGroup(models.Model):
    """Members of a project who are asked together, such as the team of a CODEOWNERS file with this name."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="groups")
    name = models.CharField(max_length=60)
    members: models.ManyToManyField[User, Any] = models.ManyToManyField(User, related_name="member_groups")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_group_per_name")]

    def __str__(self) -> str:
        return self.name


class AskedBy(models.TextChoices):
    """What put a question to somebody, in the order in which routing looks."""

    TASK = "task", "the task names them"
    RULE = "rule", "a rule of the project names them"
    OWNER = "owner", "they own the code"
    ON_CALL = "on_call", "they are on call"
    STARTER = "starter", "they started the task"
    HAND_OVER = "hand_over", "it was handed over to them"
    OPINION = "opinion", "their opinion was asked for"
    RUNG = "rung", "nobody answered in time"


class AskedQuerySet(models.QuerySet["Asked"]):
    def current(self) -> Self:
        """Return the rows that hold: a question that is handed over is asked of its former person no more."""
        return self.filter(ended_at=None)


class Asked(models.Model):
    """A question is asked of a user. A question without such rows is asked of all who may answer it.

    Others who may answer still can: this says whom it disturbs. `why` is read by people, such as
    “owns payments/ by CODEOWNERS”. `group` is the name of the group or team through which they are asked.
    `by` and `note` say who handed it over or wants an opinion, and with which words.
    """

    question = models.ForeignKey(Question, on_delete=models.CASCADE, related_name="asked")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="asked_questions")
    asked_by = models.CharField(max_length=20, choices=AskedBy)
    why = models.CharField(max_length=300)
    group = models.CharField(max_length=60, blank=True)
    by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    note = models.TextField(blank=True)
    at = models.DateTimeField()
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was handed over or taken back; empty while it holds."
    )
    announce_at = models.DateTimeField(
        null=True, blank=True, editable=False,
        help_text="When the user is told of this row, or of its end; empty afterwards, and if the question "
        "itself tells them.",
    )  # fmt: skip

    objects = AskedQuerySet.as_manager()

    class Meta:
        ordering = ["at", "pk"]
        verbose_name_plural = "asked"
        constraints = [
            models.UniqueConstraint(
                fields=["question", "user"], condition=Q(ended_at=None), name="asked_once_at_a_time"
            )
        ]
        indexes = [
            models.Index(fields=["user", "question"], condition=Q(ended_at=None), name="asked_of"),
            models.Index(
                fields=["announce_at"], condition=Q(announce_at__isnull=False), name="asked_unannounced"
            ),
        ]

    def __str__(self) -> str:
        return f"question {self.question_id} is asked of {self.user}"

    @property
    def is_by_a_person(self) -> bool:
        """Whether somebody handed it over or wants an opinion, which can be taken back."""
        return self.asked_by in (AskedBy.HAND_OVER, AskedBy.OPINION)


def asked_of(user: User) -> Q:
    """Return the condition of questions that are asked of the user: by name, or because nobody is named.

    Whose opinion is asked for is named beside those who are to answer.
    """
    current = Asked.objects.current().filter(question=OuterRef("pk"))
    return Q(Exists(current.filter(user=user)) | ~Exists(current.exclude(asked_by=AskedBy.OPINION)))


def waits_for_others(user: User) -> Q:
    """Return the condition of tasks all of whose open questions are asked of others by name.

    It begins with the named questions, which are few: most tasks that wait are not looked at.
    """
    named = Asked.objects.current().exclude(asked_by=AskedBy.OPINION)
    tasks = named.filter(question__state=QuestionState.OPEN).order_by().values("question__task")
    mine = Question.objects.open().filter(asked_of(user), task=OuterRef("pk"))
    return Q(~Exists(mine), pk__in=tasks)


def asked_of_groups_of(user: User) -> Q:
    """Return the condition of questions that are asked of a group to which the user belongs."""
    groups = MemberGroup.objects.filter(
        members=user, project=OuterRef("question__task__project"), name=OuterRef("group")
    )
    current = Asked.objects.current().filter(question=OuterRef("pk")).exclude(group="")
    return Q(Exists(current.filter(Exists(groups))))
