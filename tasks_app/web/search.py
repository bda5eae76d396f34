"""Quick search: a dialog that every page opens with Ctrl+K, and a page of its own without JavaScript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from tasks_app.core.text import storable_text
from tasks_app.models import Decision, Project, Question, Task
from tasks_app.permissions import Principal
from tasks_app.services.search import (
    FOUND,
    MAX_CHARACTERS,
    find_decisions,
    find_projects,
    find_questions,
    find_tasks,
    matches,
)
from tasks_app.web.access import principal_of, render_part_or_page
from tasks_app.web.rendering.words import STATE_LABELS, headline


@dataclass(frozen=True)
class Hit:
    """One thing to go to; `hint` says where it is or what state it is in."""

    title: str
    url: str
    icon: str
    hint: str = ""


@dataclass(frozen=True)
class HitGroup:
    title: str
    hits: list[Hit]


#: Name of the URL, title and further words by which it is found.
_PAGES = (
    ("tasks", "Tasks", "home dashboard now live running"),
    ("inbox", "Inbox", "questions answer open"),
    ("tasks_queue", "Queue", "waiting pending workers line"),
    ("tasks_all", "All tasks", "search history done answers"),
    ("projects", "Projects", "repositories"),
    ("usage", "Usage", "cost tokens dollars"),
    ("notices", "Notifications", "notices"),
    ("me", "My settings", "profile name theme time zone"),
    ("me_security", "Security", "password second factor sessions passkey"),
    ("me_working_hours", "My working hours", "days off absence holiday time zone"),
    ("me_notifications", "My notification settings", "e-mail chat push quiet hours"),
    ("me_tokens", "API tokens", "access scripts"),
)
_ADMIN_PAGES = (
    ("audit", "Audit log", "who did what entries"),
    ("admin:index", "Admin", "administration users"),
)
_ACTIONS = (
    ("task_new", "New task", "create start run"),
    ("me_tokens", "Create an API token", "new"),
)


def quick_search(request: HttpRequest) -> HttpResponse:
    text = storable_text(request.GET.get("q", ""))[:MAX_CHARACTERS].strip()
    groups = [group for group in _groups(principal_of(request), text) if group.hits]
    context = {"groups": groups, "text": text}
    return render_part_or_page(request, "search/_results.html", "search/page.html", context)


def _groups(principal: Principal, text: str) -> Iterable[HitGroup]:
    """Yield the groups; nothing typed shows what is recent."""
    pages = (*_PAGES, *_ADMIN_PAGES) if principal.is_site_admin else _PAGES
    fixed = [HitGroup("Actions", _fixed(_ACTIONS, text)), HitGroup("Pages", _fixed(pages, text))]
    if text:
        yield from fixed
    yield HitGroup("Tasks", [_task_hit(task) for task in find_tasks(principal, text)])
    yield HitGroup("Questions", [_question_hit(question) for question in find_questions(principal, text)])
    yield HitGroup("Projects", [_project_hit(project) for project in find_projects(principal, text)])
    if text:
        yield HitGroup("Decisions", [_decision_hit(decision) for decision in find_decisions(principal, text)])
    else:
        yield from fixed


def _fixed(known: Iterable[tuple[str, str, str]], text: str) -> list[Hit]:
    found = [(name, title) for name, title, more in known if matches(f"{title} {more}", text)]
    return [Hit(title, reverse(name), "arrow") for name, title in found[:FOUND]]


def _task_hit(task: Task) -> Hit:
    display = task.phase_display
    hint = f"{task.project.name} · {'not started' if task.not_started else display.label}"
    return Hit(task.title, reverse("task", args=[task.pk]), display.icon, hint)


def _question_hit(question: Question) -> Hit:
    hint = f"{question.task.project.name} › {question.task.title} · {STATE_LABELS[question.state]}"
    return Hit(str(question.title), reverse("question", args=[question.pk]), "ask", hint)


def _project_hit(project: Project) -> Hit:
    return Hit(project.name, reverse("project", args=[project.pk]), "branch")


def _decision_hit(decision: Decision) -> Hit:
    state = "" if decision.is_active else f" · {decision.get_state_display()}"
    title = f"{decision.label}: {headline(decision.statement)}"
    url = reverse("decision", args=[decision.project_id, decision.number])
    return Hit(title, url, "check", f"{decision.project.name}{state}")
