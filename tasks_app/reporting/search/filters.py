"""Which tasks and questions are wanted: the filters of the history, as they stand in a URL."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, Self

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import QueryDict

from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable_text
from tasks_app.models import Channel, Question, QuestionState, Run, Task
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.reporting.search.finding import questions_with, tasks_with
from tasks_app.reporting.search.words import Query, understood

#: No name in the database is longer.
_LONGEST_NAME = 300
#: The largest number that the databases take for a row.
_LARGEST = 2**63 - 1
ANY, NONE = "yes", "no"


@dataclass(frozen=True)
class Filters:
    """Each is empty if it is not set. `faults` says which values could not be used; they are left out.

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
    def of(cls, asked: QueryDict) -> Self:
        faults: list[str] = []
        names = ("q", "project", "person", "pipeline", "model")
        given: dict[str, Any] = {name: _text(asked, name) for name in names}
        given["phase"] = tuple(one for one in Phase if one in asked.getlist("phase"))
        given["sequence"] = _one_of(asked, "sequence", None, faults)
        given["questions"] = _one_of(asked, "questions", (ANY, NONE), faults)
        given["state"] = _one_of(asked, "state", QuestionState.values, faults)
        given["via"] = _one_of(asked, "via", Channel.values, faults)
        given["since"] = _day(asked, "from", faults)
        given["until"] = _day(asked, "to", faults)
        return cls(**given, faults=faults)

    @cached_property
    def words(self) -> Query:
        return understood(self.q)

    def __bool__(self) -> bool:
        return bool(self.in_url())

    @property
    def narrowing(self) -> int:
        """How many are set beside the words."""
        return len(self.in_url().keys() - {"q"})

    def in_url(self) -> dict[str, Any]:
        """The parameters that say the same again."""
        shown = {"since": "from", "until": "to"}
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "faults"}
        return {shown.get(name, name): value for name, value in values.items() if value}

    def tasks(self, principal: Principal) -> QuerySet[Task]:
        """The tasks that are wanted and that the principal may see, in no order."""
        tasks = Task.objects.order_by().filter(self._in_projects(principal, "project"))
        for name, way in (
            ("person", "created_by__username"),
            ("pipeline", "pipeline"),
            ("phase", "phase__in"),
        ):
            if value := getattr(self, name):
                tasks = tasks.filter(**{way: value})
        if self.sequence:
            tasks = tasks.filter(sequence=int(self.sequence))
        if self.model:
            tasks = tasks.filter(Exists(Run.objects.filter(step__task=OuterRef("pk"), model=self.model)))
        if self.questions:
            asked = Exists(Question.objects.filter(task=OuterRef("pk")))
            tasks = tasks.filter(asked if self.questions == ANY else ~asked)
        tasks = tasks.filter(self._between("created_at"))
        return tasks_with(tasks, self.words) if self.q.strip() else tasks

    def asked(self, principal: Principal) -> QuerySet[Question]:
        """The questions that are wanted and that the principal may see, in no order; `person` answered."""
        questions = Question.objects.order_by().filter(self._in_projects(principal, "task__project"))
        for name, way in (("person", "answered_by__username"), ("state", "state"), ("via", "answered_via")):
            if value := getattr(self, name):
                questions = questions.filter(**{way: value})
        questions = questions.filter(self._between("asked_at"))
        return questions_with(questions, self.words) if self.q.strip() else questions

    def _in_projects(self, principal: Principal, way: str) -> Q:
        """Their numbers: in 100,000 tasks a list is found by index, a join over memberships is not."""
        projects = projects_visible_to(principal).order_by()
        if self.project:
            projects = projects.filter(name=self.project)
        elif principal.is_site_admin:
            return Q()
        return Q(**{f"{way}__in": list(projects.values_list("pk", flat=True))})

    def _between(self, when: str) -> Q:
        wanted = Q()
        if self.since:
            wanted &= Q(**{f"{when}__gte": midnight(self.since)})
        if self.until and self.until < date.max:
            wanted &= Q(**{f"{when}__lt": midnight(self.until + timedelta(days=1))})
        return wanted


def midnight(day: date) -> datetime:
    """The beginning of the day in UTC."""
    return datetime.combine(day, time(), UTC)


def _text(asked: QueryDict, name: str) -> str:
    return storable_text(asked.get(name, ""))[:_LONGEST_NAME].strip() if name != "q" else _typed(asked)


def _typed(asked: QueryDict) -> str:
    return storable_text(asked.get("q", ""))[:_LONGEST_NAME]


def _one_of(asked: QueryDict, name: str, values: Any, faults: list[str]) -> str:
    """One of the values, or the number of a row if there are none."""
    value = storable_text(asked.get(name, ""))[:_LONGEST_NAME].strip()
    if not value or (value in values if values else _is_number(value)):
        return value
    must = f"one of {', '.join(values)}" if values else "a number"
    faults.append(f"“{name}” must be {must}, not “{value[:40]}”. It was left out.")
    return ""


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and int(value[:30]) <= _LARGEST


def _day(asked: QueryDict, name: str, faults: list[str]) -> date | None:
    value = asked.get(name, "").strip()
    try:
        return date.fromisoformat(value) if value else None
    except ValueError:
        shown = storable_text(value[:40])
        faults.append(f"“{name}” must be a day such as 2026-03-01, not “{shown}”. It was left out.")
        return None
