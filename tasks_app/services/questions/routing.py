"""Put open questions to people, after their rows are committed and the task's work is recorded (Q1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache

from django.db import transaction
from django.utils import timezone

from tasks_app.config.code_owners import PLACES, CodeOwners, Dialect
from tasks_app.config.faults import key_path, shown
from tasks_app.config.pipeline import load_project_config
from tasks_app.config.project_settings import effective
from tasks_app.config.routing import AskedPerson, Asking, AskRule, Directory, Person, route
from tasks_app.config.validation.findings import Finding, Report, warning
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git import Repository, committed_text
from tasks_app.models import (
    Asked,
    AskedBy,
    Calendar,
    Change,
    ChangeKind,
    MemberGroup,
    Project,
    Question,
    Task,
    paths,
)
from tasks_app.permissions import users_who_act_in
from tasks_app.services.calendars import on_call_now, shifts_of_nobody
from tasks_app.services.projects.settings import CONFIG_FILE, overrides_of, repository_settings
from tasks_app.services.publishing.settings import forge_address_of
from tasks_app.services.questions.concerned_files import named_and_changed_files
from tasks_app.services.working_hours import WITH_SCHEDULE, schedule_of

logger = logging.getLogger(__name__)

_BATCH_SIZE = 100
#: Shifts that mean nobody, of which a page or a validation tells.
MOST_SHIFTS = 20
#: Owners of code who mean nobody, which one finding names.
MOST_NAMES = 10


def route_due_questions() -> int:
    """Put open questions that were not routed yet to people; return their number.

    A task that its worker still holds is left for later: what its agent has changed is not recorded yet, and
    a decision may answer. A question that cannot be routed is asked of all who may answer.
    """
    due = Question.objects.open().filter(routed_at=None, task__in=Task.objects.free())
    related = due.select_related("task__project", "task__created_by", "task__sequence", "step", "reopens")
    routed = 0
    for question in related.order_by("asked_at", "pk")[:_BATCH_SIZE]:
        try:
            people = people_for(question)
        except Exception:
            logger.exception("question %s cannot be routed; it is asked of all who may answer", question.pk)
            people = []
        routed += put_to(question, people, timezone.now())
    return routed


def people_for(question: Question) -> list[AskedPerson]:
    """Return whom the question is put to. Runs git. Raises WorkspaceError or BadInput."""
    task = question.task
    named, changed = named_and_changed_files(question)
    headers = tuple(str(item.get("header") or "") for item in question.items)
    return people_asked(
        task.project,
        Asking(question.kind, question.step.name, headers, tuple(named), tuple(changed)),
        commit=task.base_commit,
        chosen=task.ask,
        starter=task.created_by.username if task.created_by else "",
    )


def people_asked(
    project: Project, question: Asking, *, commit: str, chosen: list[str], starter: str
) -> list[AskedPerson]:
    """Return whom a question would be put to by the rules and owners at a commit, and by who is on call now.

    Runs git.
    """
    rules: tuple[AskRule, ...] = ()
    owners = None
    on_call = on_call_now(project, timezone.now())
    if commit:
        rules = effective(repository_settings(project, commit=commit), overrides_of(project)).ask
        owners = owners_at(project, commit)
    directory = directory_of(project)
    return route(
        question, directory, chosen=chosen, rules=rules, owners=owners, on_call=on_call, starter=starter
    )


def directory_of(project: Project) -> Directory:
    """Return who may answer questions of the project, and its groups."""
    users, now = users_who_act_in(project.pk).select_related(*WITH_SCHEDULE).order_by("pk"), timezone.now()
    groups = MemberGroup.objects.filter(project=project).prefetch_related("members")
    return Directory(
        tuple(
            Person(
                user.pk,
                user.username,
                user.email,
                user.get_full_name(),
                away=schedule_of(user).absence_at(now) is not None,
            )
            for user in users
        ),
        {group.name: [user.pk for user in group.members.all()] for group in groups},
    )


def names_of_nobody(project: Project, names: Sequence[str]) -> list[str]:
    """Return those of the names by which nobody who may answer is meant, each once."""
    directory = directory_of(project)
    return [name for name in dict.fromkeys(names) if not directory.find(name)]


def require_people(project: Project, names: Sequence[str]) -> None:
    """Raise BadInput if one of the names means nobody who may answer in the project."""
    if names and (unknown := names_of_nobody(project, names)):
        raise BadInput(
            f"{shown(unknown[0])} is neither a user who may answer in {project} nor a group with such a"
            " member",
            where="ask",
        )


def with_people(report: Report, project: Project, text: str | None) -> Report:
    """Return the report on the project's repository with a warning for each name that means nobody.

    `text` is that of its cat-herder.yaml, whose faults are in the report already.
    """
    try:
        config = load_project_config(text, where=CONFIG_FILE)
    except BadInput:
        return report
    document, directory = read_yaml(text or "", where=CONFIG_FILE), directory_of(project)
    found = []
    for place, rule in enumerate(config.ask):
        for name in rule.people:
            if not directory.find(name):
                key = ("ask", place, "people")
                message = (
                    f"names {shown(name)}, who is neither a user who may answer in {project} nor a group with"
                    " such a member"
                )
                found.append(warning(CONFIG_FILE, message, line=document.line_of(key), key=key_path(key)))
    calendar = Calendar.objects.filter(project=project, source=config.on_call).first()
    for message in _calendar_faults(calendar, directory) if calendar else ():
        line = document.line_of(("onCall",))
        found.append(warning(CONFIG_FILE, message, line=line, key="onCall"))
    found += _owners_of_nobody(project, directory)
    return Report.of([*report.findings, *found], looked_at=report.looked_at)


def _calendar_faults(calendar: Calendar, directory: Directory) -> Iterator[str]:
    """Yield what is wrong with an on-call calendar, each as the rest of a sentence."""
    if calendar.fault and calendar.fault_since:
        yield f"cannot be read since {calendar.fault_since:%Y-%m-%d %H:%M} (UTC). {calendar.fault}"
    for note in calendar.notes:
        yield f"is read in part. {note}"
    for shift in shifts_of_nobody(calendar, directory, timezone.now())[:MOST_SHIFTS]:
        day = f"{shift.begin:%Y-%m-%d}"
        yield f"has the shift {shown(shift.label)} on {day}, which means nobody who may answer"


def owners_at(project: Project, commit: str) -> CodeOwners | None:
    """Return the owners of the project's files at a commit, as its forge reads them. Runs git."""
    address = forge_address_of(project)
    return code_owners(paths.repository(project), commit, address.kind.value if address else None)


def _owners_of_nobody(project: Project, directory: Directory) -> Iterator[Finding]:
    """Yield a warning if the newest CODEOWNERS names owners who mean nobody who may answer."""
    try:
        owners = owners_at(project, paths.repository(project).head(project.branch))
    except WorkspaceError:  # what cannot be read, the page of the project says
        return
    unknown = {} if owners is None else owners.names()
    unknown = {name: line for name, line in unknown.items() if not directory.find(name)}
    if owners and unknown:
        names = ", ".join(list(unknown)[:MOST_NAMES])
        more = len(unknown) - MOST_NAMES
        message = (
            f"names {names}{f' and {more} more' if more > 0 else ''}: nobody of these names may answer in "
            f"{project}. Questions about their files are put to others"
        )
        yield warning(owners.place, message, line=min(unknown.values()))


@lru_cache(maxsize=100)
def code_owners(repository: Repository, commit: str, forge: Dialect | None) -> CodeOwners | None:
    """Return the owners at a commit, from the first file that the forge reads; None without such a file.

    Without a known forge, the folder of the file says whose rules hold; elsewhere those of GitHub do.
    """
    for dialect, places in PLACES.items():
        if forge in (None, dialect):
            for place in places:
                text = committed_text(repository, commit=commit, path=place)
                if text is not None:
                    return CodeOwners.parse(text, dialect, place=place)
    return None


@transaction.atomic
def put_to(question: Question, people: list[AskedPerson], now: datetime) -> bool:
    """Store whom the question is put to; return False if somebody was first, or it is no longer open.

    A question that asks an earlier one again is put to the people of that one.
    """
    due = Question.objects.open().filter(pk=question.pk, routed_at=None)
    if not due.update(routed_at=now):
        return False
    rows = [
        Asked(
            question=question,
            user_id=one.person.id,
            asked_by=AskedBy(one.asked_by),
            why=one.why[:300],
            group=one.group[:60],
            at=now,
        )
        for one in people
    ]
    if question.reopens:
        earlier = list(question.reopens.asked.current())
        for one in earlier:
            one.pk, one.question, one.at = None, question, now
        rows = earlier or rows
    Asked.objects.bulk_create(rows, ignore_conflicts=True)
    if rows:
        Change.objects.create(task=question.task, kind=ChangeKind.QUESTION)
    return True
