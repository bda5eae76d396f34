"""Decide whom a question is put to, without a database: by the first rule that names somebody (Q1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.config.code_owners import CodeOwners
from tasks_app.config.fields import FileModel, Glob, Line, Name, as_list
from tasks_app.core.calendars import Shift

RoutedBy = Literal["task", "rule", "owner", "on_call", "starter"]
AskedKind = Literal["clarification", "approval", "plan", "cost"]
#: Rules of a project, and entries of each list of a rule.
MOST_RULES = MOST_ENTRIES = 50

T = TypeVar("T")
Several = Annotated[
    tuple[T, ...],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    Field(max_length=MOST_ENTRIES),
]


class AskRule(FileModel):
    """Whom questions of some kinds, steps, headers or files are put to."""

    kind: Several[AskedKind] = Field(
        default=(), description="clarification, approval, plan or cost; absent: all."
    )
    step: Several[Name] = Field(default=(), description="Steps in which it is asked; absent: all.")
    header: Several[Line] = Field(
        default=(), description="What the question is about, in the agent's word or two; absent: anything."
    )
    paths: Several[Glob] = Field(
        default=(),
        description="Patterns of files that the question names or the task has changed; absent: any.",
    )
    people: Annotated[Several[Line], Field(min_length=1)] = Field(
        description="User names, e-mail addresses, or @NAME of a group of members."
    )

    def __str__(self) -> str:
        """Return the rule as it is shown: what it is about, and whom it asks."""
        about = [f"{name} {', '.join(values)}" for name, values in self if values and name != "people"]
        return f"{'; '.join(about) or 'all questions'}: {', '.join(self.people)}"

    def matches(self, question: Asking) -> bool:
        """Return whether the rule is about the question: everything that it names must fit."""
        headers = {header.casefold() for header in question.headers}
        return (
            (not self.kind or question.kind in self.kind)
            and (not self.step or question.step in self.step)
            and (not self.header or any(one.casefold() in headers for one in self.header))
            and (not self.paths or any(allowed(path, self.paths) for path in question.paths))
        )


AskRules = Annotated[tuple[AskRule, ...], Field(max_length=MOST_RULES)]


@dataclass(frozen=True)
class Asking:
    """What routing looks at of a question: `named` files it names, `changed` ones its task has changed."""

    kind: str
    step: str
    headers: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.named, *self.changed)


@dataclass(frozen=True)
class Person:
    """A user who may answer the question. `away`: they are absent now, so that others are asked."""

    id: int
    username: str
    email: str = ""
    name: str = ""
    away: bool = False


@dataclass(frozen=True)
class AskedPerson:
    """Somebody whom a question is put to, with the reason in words and the group they are asked as."""

    person: Person
    asked_by: RoutedBy
    why: str
    group: str = ""


@dataclass(frozen=True)
class OnCall:
    """A shift that covers the moment, with the reason for which its people are asked."""

    shift: Shift
    why: str = "on call"


@dataclass(frozen=True)
class Directory:
    """Those who may answer, and groups of members: the ids of users by the group's name."""

    people: tuple[Person, ...]
    groups: Mapping[str, Collection[int]] = field(default_factory=dict)

    def find(self, name: str) -> list[tuple[Person, str]]:
        """Return who is meant by a user name, an e-mail address or the name of a group, with that group.

        The name of a team at a forge, such as @acme/payments, also means the group with its last part.
        """
        wanted = name.removeprefix("@").casefold()
        if "@" in wanted:
            return [(one, "") for one in self.people if one.email.casefold() == wanted]
        if found := [(one, "") for one in self.people if one.username.casefold() == wanted]:
            return found
        for group, ids in self.groups.items():
            if group.casefold() in (wanted, wanted.rsplit("/", 1)[-1]):
                return [(one, group) for one in self.people if one.id in ids]
        return []

    def on_call(self, shift: Shift) -> list[tuple[Person, str]]:
        """Return who is meant by a shift: its attendees, else people or a group that its title names.

        A group that a title names beside a person is what the person is on call for.
        """
        for names in (shift.people, shift.names):
            found = [one for name in names for one in self.find(name) or self._named(name)]
            if people := [one for one in found if not one[1]] or found:
                return people
        return []

    def _named(self, name: str) -> list[tuple[Person, str]]:
        return [(one, "") for one in self.people if one.name and one.name.casefold() == name.casefold()]


#: What named people who may not answer.
_SOURCES: Mapping[RoutedBy, str] = {
    "task": "the task names",
    "rule": "a rule of the project names",
    "owner": "CODEOWNERS names",
    "on_call": "the on-call calendar names",
    "starter": "the task was started by",
}
#: So many names does a reason say.
_MOST_NAMES = 3


def route(
    question: Asking,
    directory: Directory,
    *,
    chosen: Sequence[str] = (),
    rules: Sequence[AskRule] = (),
    owners: CodeOwners | None = None,
    on_call: Sequence[OnCall] = (),
    starter: str = "",
) -> list[AskedPerson]:
    """Return whom the question is put to, each once; nobody if it is asked of all who may answer.

    `chosen` are the people of the task's own choice. Who is away is passed over, and so is a rule that names
    nobody who may answer; the reason of the next one says so.
    """
    passed_over = ""
    for asked_by, named in _candidates(question, chosen, rules, owners, on_call, starter):
        found: dict[int, AskedPerson] = {}
        for name, why in named:
            people = directory.on_call(name) if isinstance(name, Shift) else directory.find(name)
            for person, group in people:
                found.setdefault(person.id, AskedPerson(person, asked_by, f"{why}{passed_over}", group))
        if present := [one for one in found.values() if not one.person.away]:
            return present
        if found and not passed_over:
            names = " and ".join(one.person.name or one.person.username for one in found.values())
            passed_over = f"; {names} {'is' if len(found) == 1 else 'are'} away"
        elif named and not passed_over:
            names = ", ".join(str(getattr(name, "label", name)) for name, _ in named[:_MOST_NAMES])
            passed_over = f"; {_SOURCES[asked_by]} {names}, who may not answer"
    return []


def _candidates(
    question: Asking,
    chosen: Sequence[str],
    rules: Sequence[AskRule],
    owners: CodeOwners | None,
    on_call: Sequence[OnCall],
    starter: str,
) -> Iterator[tuple[RoutedBy, Sequence[tuple[str | Shift, str]]]]:
    """Yield the sources in the order in which they are looked at, with names and why they are asked."""
    yield "task", [(name, "named by the task") for name in chosen]
    for number, rule in enumerate(rules, start=1):
        if rule.matches(question):
            yield "rule", [(name, f"rule {number} of the project") for name in rule.people]
    if owners:
        yield "owner", _owners_of(question.named, owners)
        yield "owner", _owners_of(question.changed, owners)
    yield "on_call", [(one.shift, one.why) for one in on_call]
    yield "starter", [(starter, "started the task")] if starter else []


def _owners_of(paths: Iterable[str], owners: CodeOwners) -> list[tuple[str, str]]:
    named = {
        (name, f"owns {one.pattern.lstrip('/')[:100] or 'everything'} by CODEOWNERS"): None
        for path in paths
        for one in owners.of(path)
        for name in one.owners
    }
    return list(named)
