"""Filters of the lists of tasks and questions, parsed from a URL."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, Self

from django.db.models import Exists, OuterRef, Q
from django.http import QueryDict

from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text
from tasks_app.models import Channel, Question, QuestionState, Run, Sequence, Task
from tasks_app.models.question import QuestionQuerySet
from tasks_app.models.task import TaskQuerySet
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.services.search import Query, parse_query, questions_with, tasks_with

#: No name in the database is longer.
_MAX_NAME = 300
#: The largest id that the databases support.
_MAX_ID = 2**63 - 1
#: More sequences than a word of a folder's name is meant to find.
_MOST_FOLDERS = 200
ANY, NONE = "yes", "no"


@dataclass(frozen=True)
class ListFilters:
    """Filters for tasks and questions; unset ones are empty. `faults` has messages on ignored values.

    `since` and `until` are days in UTC, both included: when the task was created, or the question asked.
    """

    q: str = ""
    project: str = ""
    person: str = ""
    phase: tuple[str, ...] = ()
    pipeline: str = ""
    model: str = ""
    sequence: str = ""
    questions: str = ""
    state: str = ""
    via: str = ""
    since: date | None = None
    until: date | None = None
    faults: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def from_query(cls, query: QueryDict) -> Self:
        faults: list[str] = []
        names = ("project", "person", "pipeline", "model")
        given: dict[str, Any] = {
            name: storable_text(query.get(name, ""))[:_MAX_NAME].strip() for name in names
        }
        given["q"] = storable_text(query.get("q", ""))[:_MAX_NAME]  # a final space ends the last word
        given["phase"] = tuple(one for one in Phase if one in query.getlist("phase"))
        given["sequence"] = _one_of(query, "sequence", None, faults)
        given["questions"] = _one_of(query, "questions", (ANY, NONE), faults)
        given["state"] = _one_of(query, "state", QuestionState.values, faults)
        given["via"] = _one_of(query, "via", Channel.values, faults)
        given["since"] = _parse_day(query, "from", faults)
        given["until"] = _parse_day(query, "to", faults)
        return cls(**given, faults=faults)

    @cached_property
    def words(self) -> Query:
        return parse_query(self.q)

    def __bool__(self) -> bool:
        return bool(self.url_parameters())

    @property
    def count_set(self) -> int:
        """The number of filters that are set, not counting the words."""
        return len(self.url_parameters().keys() - {"q"})

    def url_parameters(self) -> dict[str, Any]:
        """Return the URL parameters of these filters."""
        shown = {"since": "from", "until": "to"}
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "faults"}
        return {shown.get(name, name): value for name, value in values.items() if value}

    def matching_tasks(self, principal: Principal) -> TaskQuerySet:
        """Return matching tasks that the principal may see, unordered.

        Words are also those of the folder of the task's sequence.
        """
        tasks = Task.objects.order_by().filter(self._in_projects(principal, "project"))
        for name, lookup in (
            ("person", "created_by__username"),
            ("pipeline", "pipeline"),
        ):
            if value := getattr(self, name):
                tasks = tasks.filter(**{lookup: value})
        if self.phase:
            tasks = tasks.in_phases(*self.phase)
        if self.sequence:
            tasks = tasks.filter(sequence=int(self.sequence))
        if self.model:
            tasks = tasks.filter(Exists(Run.objects.filter(step__task=OuterRef("pk"), model=self.model)))
        if self.questions:
            asked = Exists(Question.objects.filter(task=OuterRef("pk")))
            tasks = tasks.filter(asked if self.questions == ANY else ~asked)
        tasks = tasks.filter(self._between("created_at"))
        if not self.q.strip():
            return tasks
        found = tasks_with(tasks, self.words)
        folders = Sequence.objects.filter(*(Q(folder__icontains=word) for word in self.q.split()))
        if sequences := list(folders.values_list("pk", flat=True)[:_MOST_FOLDERS]):
            in_folders = tasks.filter(sequence__in=sequences)
            return tasks.filter(pk__in=found.values("pk").union(in_folders.values("pk")))
        return found

    def matching_questions(self, principal: Principal) -> QuestionQuerySet:
        """Return matching questions that the principal may see, unordered; `person` is who answered."""
        questions = Question.objects.order_by().filter(self._in_projects(principal, "task__project"))
        for name, lookup in (
            ("person", "answered_by__username"),
            ("state", "state"),
            ("via", "answered_via"),
        ):
            if value := getattr(self, name):
                questions = questions.filter(**{lookup: value})
        questions = questions.filter(self._between("asked_at"))
        if self.q.strip():
            return questions_with(questions, self.words)
        return questions

    def _in_projects(self, principal: Principal, lookup: str) -> Q:
        """Filter by a list of project ids, which uses an index; a join over memberships does not."""
        projects = projects_visible_to(principal).order_by()
        if self.project:
            projects = projects.filter(name=self.project)
        elif principal.is_site_admin:
            return Q()
        return Q(**{f"{lookup}__in": list(projects.values_list("pk", flat=True))})

    def _between(self, column: str) -> Q:
        condition = Q()
        if self.since:
            condition &= Q(**{f"{column}__gte": midnight(self.since)})
        if self.until and self.until < date.max:
            condition &= Q(**{f"{column}__lt": midnight(self.until + timedelta(days=1))})
        return condition


def midnight(day: date) -> datetime:
    """Return the beginning of the day in UTC."""
    return datetime.combine(day, time(), UTC)


def _one_of(query: QueryDict, name: str, values: Any, faults: list[str]) -> str:
    """Return one of the values, or an id if `values` is None; append to `faults` otherwise."""
    value = storable_text(query.get(name, ""))[:_MAX_NAME].strip()
    if values:
        is_valid, must = value in values, f"one of {', '.join(values)}"
    else:
        is_valid = value.isascii() and value.isdigit() and int(value[:30]) <= _MAX_ID
        must = "a number"
    if is_valid or not value:
        return value
    faults.append(f"“{name}” must be {must}, not “{value[:40]}”. It was ignored.")
    return ""


def _parse_day(query: QueryDict, name: str, faults: list[str]) -> date | None:
    value = query.get(name, "").strip()
    if not value:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        shown = storable_text(value[:40])
        faults.append(f"“{name}” must be a day such as 2026-03-01, not “{shown}”. It was ignored.")
        return None
