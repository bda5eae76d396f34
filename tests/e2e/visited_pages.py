"""Rows of every kind, for tests that visit all pages; created in a separate process."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.test import Client
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.types import ALLOW_COMMAND, REVIEW_PLAN
from tasks_app.history.audit import record
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Action,
    AuditEntry,
    DecisionEvent,
    EventKind,
    Project,
    Publication,
    PublicationState,
    PullRequest,
    Question,
    QuestionKind,
    QuestionState,
    Role,
    Run,
    Scope,
    Task,
    User,
    Verdict,
)
from tasks_app.services.accounts import make_token
from tasks_app.services.projects.projects import add_project
from tasks_app.services.publishing.settings import NewCredential, store_credential
from tests.addresses import NAMES, NOT_THERE, OPEN_TO_ALL, POST_ONLY, address
from tests.factories import (
    COLUMNS,
    FILE_NAME,
    ROUNDING,
    DecisionFactory,
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    TaskFactory,
    UserFactory,
)
from tests.integration.git_repository import GitRepository
from tests.integration.test_access import make_question
from tests.people import acting

Paths = list[tuple[str, int]]


def seed() -> dict[str, Any]:
    """Sessions by who looks, and the paths to walk with the status that each must have."""
    question = make_question()
    admin = UserFactory.create(username="admin", is_superuser=True, is_staff=True, first_name="Ada")
    _people_at_work(question, admin)
    viewer = MembershipFactory.create(project=question.task.project, role=Role.VIEWER).user
    return {
        "sessions": {
            "admin": session(admin),
            "newcomer": session(UserFactory.create(username="new")),
            "viewer": session(viewer),
            "stranger": "",
        },
        "paths": {
            "admin": [*_every_page(question), *_states_of(question, admin), *_pages_of_projects(admin)],
            "newcomer": [
                ("/tasks/", 200),
                ("/inbox/", 200),
                ("/tasks/queue/", 200),
                (f"/tasks/{question.task_id}/", 404),
            ],
            "viewer": [(address("question", question), 200), (address("task", question), 200)],
            "stranger": [*_ways_in(question), ("/nowhere/", 404)],
        },
        "admin_pages": _admin_pages(question),
    }


def _admin_pages(question: Question) -> list[str]:
    """Its index, the lists that people look things up in, a row that nobody can change and one to fill in."""
    record(Action.TASK_CREATED, task=question.task, actor_name="ada")
    entry = AuditEntry.objects.latest("pk")
    lists = ["auditentry", "task", "question", "user"]
    rows = [f"auditentry/{entry.pk}/change", f"question/{question.pk}/change", "user/add"]
    return ["/admin/", *(f"/admin/tasks_app/{path}/" for path in (*lists, *rows))]


def real_project(name: str, folder: Path, admin: User) -> Project:
    """A project with a repository behind it, whose settings have faults of every kind."""
    GitRepository.make(folder / name, **FILES)
    return add_project(name, str(folder / name), by=admin)


def _pages_of_projects(admin: User) -> Paths:
    """With a repository behind them: with faults, with none, without settings, and broken."""
    folder = Path(settings.DATA_DIR) / "walked"
    faulty = real_project("shop", folder, admin)
    GitRepository.make(folder / "bare", **{"README.md": "# Bare"})
    GitRepository.make(folder / "broken", **{"cat-herder.yaml": "piplines: {}\n"})
    made = [faulty, *(add_project(name, str(folder / name), by=admin) for name in ("bare", "broken"))]
    pages = [path for one in made for path in (f"/projects/{one.pk}/", f"/projects/{one.pk}/settings/")]
    pages += [f"/projects/{one.pk}/publishing/" for one in _publishing_over_a_network(admin)]
    new = f"/tasks/new/?project={faulty.pk}"
    return [(path, 200) for path in (*pages, new, f"{new}&q=round", f"{new}&kind=folder&folder=tasks/prices")]


def _publishing_over_a_network(admin: User) -> list[Project]:
    """With a token, with a token for another repository, without a key, and at GitHub, which takes an app."""
    url = "https://git.example/robots/a-shop-with-a-rather-long-name.git"
    made = [ProjectFactory.create(name=f"web-{n}", source=url) for n in range(2)]
    for project in made:
        token = NewCredential("token", "glpat-1", username="robot")
        store_credential(project, token, by=acting(admin))
    Project.objects.filter(pk=made[1].pk).update(source="https://elsewhere.example/shop.git")
    others = {"web-ssh": "git@git.example:shop.git", "web-app": "https://github.com/robots/shop.git"}
    return [*made, *(ProjectFactory.create(name=name, source=source) for name, source in others.items())]


def session(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def _every_page(question: Question) -> Paths:
    return _paths(set(NAMES) - POST_ONLY - OPEN_TO_ALL, question)


def _ways_in(question: Question) -> Paths:
    return _paths(OPEN_TO_ALL - POST_ONLY, question)


def _paths(names: set[str], question: Question) -> Paths:
    """Of things that nobody here has, only the look counts: their status is 0."""
    return [(address(name, question), 0 if name in NOT_THERE else 200) for name in sorted(names)]


def _states_of(question: Question, admin: User) -> Paths:
    """Pages that look different by what is asked of them."""
    states = [(f"/inbox/?state={state}", 200) for state in QuestionState.values]
    states += _decisions(question, admin)
    states += [(f"/tasks/{task.pk}/", 200) for task in _published_tasks(question.task.project, admin)]
    return [*states, ("/api/v1/docs", 200), ("/inbox/?person=mine&age=30d", 200), ("/nowhere/", 404)]


def _decisions(question: Question, admin: User) -> Paths:
    """Decisions of each state, with and without a question, a reason and cited files."""
    project, cites = question.task.project, [{"path": "shop/bill.py", "blob": "a" * 40}]
    stale = DecisionFactory.create(
        project=project, question=question, reason=MARKDOWN, statement="Money is stored in cents " * 9,
        cites=cites, review_reason="stale", review_note="shop/bill.py",
    )  # fmt: skip
    proposed = DecisionFactory.create(
        project=project, state="proposed", decided_by=None, decided_at=None, source="docs/adr/0012-cents.md:1"
    )
    retired = DecisionFactory.create(project=project, state="retired", replaces=stale)
    DecisionEvent.objects.create(
        decision=stale, kind="followed", user=admin, task=question.task, note="x" * 300
    )
    pages = [f"{one.number}/" for one in (stale, proposed, retired)]
    lists = [f"?state={state}" for state in ("review", "superseded", "all", "all&q=plum")]
    return [(f"/projects/{project.pk}/decisions/{page}", 200) for page in (*pages, *lists)]


def _published_tasks(project: Project, by: User) -> list[Task]:
    """Tasks whose result is being published, was published, was refused, and was never published."""
    url = "https://git.example/robots/a-shop-with-a-rather-long-name.git"
    answers = {
        PublicationState.PENDING: "",
        PublicationState.PUSHED: "Create a merge request for this branch:\nhttps://git.example/merge/new?id=1",
        PublicationState.REFUSED: f"{url} refused the branch: pre-receive hook declined\nNot on a Friday.",
    }
    result = {"base_commit": "a" * 40, "head_commit": "b" * 40, "phase": Phase.DONE}
    tasks = [TaskFactory.create(project=project, **result) for _ in range(4)]
    for task, (state, answer) in zip(tasks, answers.items(), strict=False):
        Publication.objects.create(
            task=task, commit=task.head_commit, published_commit=task.head_commit, url=url, state=state,
            branch=task.branch, answer=answer, by=by, ended_at=timezone.now(),
        )  # fmt: skip
    states = ("passed", "failed", "pending", "skipped")
    checks = [{"name": f"one {state}", "state": state, "url": "https://git.example/ci"} for state in states]
    PullRequest.objects.create(
        project=project, task=tasks[1], kind="github", url=url, number=128, title="Round the totals " * 9,
        base="main", web_url="https://git.example/128", draft=True, checks=checks,
        looked_at=timezone.now(), next_look_at=timezone.now(),
    )  # fmt: skip
    return tasks


def _people_at_work(question: Question, admin: User) -> None:
    """Tasks of every phase, questions of every kind and state, and a log with all that a log can hold."""
    for kind, payload in LOG:
        append_one(question.run, EventKind(kind), payload)
    make_token("nightly build", list(Scope), by=acting(admin))
    make_token("dashboard", [Scope.READ], by=acting(admin), projects=[question.task.project])
    for phase in Phase:
        failed = phase == Phase.FAILED
        TaskFactory.create(
            project=question.task.project, phase=phase, created_by=admin, queued_at=timezone.now(),
            failure="`make test` failed with exit 2.\n3 tests failed" if failed else "",
        )  # fmt: skip
    TaskFactory.create(project=ProjectFactory.create(name="an-empty-one"))
    QuestionFactory.create(items=[ROUNDING, COLUMNS, FILE_NAME], asked_at=timezone.now() - timedelta(days=2))
    _asked(LAYOUT)
    _asked(YES_OR_NO, evidence=[FILE])
    _asked(UNBROKEN)
    _asked(DEPLOY, kind=QuestionKind.APPROVAL, evidence=[COMMAND, DIFF])
    _asked(
        PLAN, kind=QuestionKind.PLAN, evidence=[{"kind": "markdown", "title": "PLAN.md", "text": MARKDOWN}]
    )
    _closed(question, 2, QuestionState.WITHDRAWN)
    by_admin = {"answered_by": admin, "answered_at": timezone.now(), "answered_via": "web"}
    _closed(question, 4, QuestionState.DISMISSED, **by_admin, notes="Nobody knows any more.")
    denied = {"kind": QuestionKind.APPROVAL, "items": [DEPLOY], "verdict": Verdict.DENIED}
    _closed(question, 5, QuestionState.ANSWERED, **by_admin, **denied, notes="Not on a Friday.")
    said = {"answers": {ROUNDING["question"]: "Half up"}, "notes": "As in the reports."}
    _closed(question, 3, QuestionState.ANSWERED, **by_admin, **said)


def _asked(item: dict[str, Any], **facts: Any) -> None:
    asked = QuestionFactory.create(items=[item], asked_at=timezone.now() - timedelta(hours=1), **facts)
    Run.objects.filter(pk=asked.run_id).update(model="claude-sonnet-4-5")


def _closed(question: Question, number: int, state: str, **facts: Any) -> None:
    QuestionFactory.create(task=question.task, run=question.run, number=number, state=state, **facts)


LAYOUT = {
    "question": "Which layout?\n\nThe printer has **42 columns**. `bill.py` cuts longer lines.",
    "header": "Layout",
    "options": [
        {
            "label": "Columns",
            "description": "Prices right.",
            "preview": "Tea      2.40\n-----\nTotal    2.40",
        },
        {"label": "Lines", "description": "A line for each.", "preview": "Tea: 2.40\nTotal: 2.40"},
    ],
}
YES_OR_NO = {
    "question": "Should the old rounding stay for the bills of last year?",
    "header": "History",
    "options": [{"label": "Yes"}, {"label": "No"}],
}
UNBROKEN = {
    "question": "x" * 300,
    "header": "y" * 80,
    "options": [{"label": "z" * 300, "description": "w" * 300}, {"label": "No"}],
}
DEPLOY = {"question": ALLOW_COMMAND, "header": "Bash"}
PLAN = {"question": REVIEW_PLAN, "header": "Plan"}
FILE = {"kind": "file", "title": "shop/bill.py", "text": "def total(items):\n    return sum(items)\n"}
COMMAND = {
    "kind": "command",
    "title": "Bash, in the workspace",
    "text": "rm -rf build && make deploy TARGET=production REGION=eu-central-1 VERBOSE=1",
}
DIFF = {
    "kind": "diff",
    "title": "deploy.sh",
    "text": "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ deploy\n set -eu\n--- staging\n+-- production\n",
}
MARKDOWN = """# Plan

I look at `bill.py` **first**:

| a | b |
|---|---|
| 1 | 2 |

```
x = 1
```
"""
EDIT = {"file_path": "a.py", "old_string": "1", "new_string": "2"}
LOG: list[tuple[str, dict[str, Any]]] = [
    ("text", {"text": MARKDOWN}),
    ("thinking", {"text": "Half cents again. The tests say nothing of them."}),
    ("tool_use", {"id": "a", "name": "Bash", "input": {"command": "make test"}}),
    ("tool_result", {"tool_use_id": "a", "text": "\x1b[31mfailed\x1b[0m\n" * 20, "is_error": True}),
    ("tool_use", {"id": "b", "name": "Edit", "input": EDIT}),
    ("tool_result", {"tool_use_id": "b", "text": "done"}),
    ("check", {"check": "make test", "passed": True, "output": "12 passed"}),
    ("check", {"check": "make lint", "passed": False, "output": "line too long"}),
]
SETTINGS = """\
interactionThreshold: 2
taskFolder: tasks
defaultPipeline: feature
model: claudius
pipelines:
  feature:
    - name: plan
      command: plan-task
      check: {type: fileExists, path: PLAN.md}
      fileAccess: {allowWrite: [PLAN.md]}
    - name: implement
      command: implement
      check: [{type: shell, command: make test, timeout: 10m}, {type: shell, command: ./none.sh}]
      retry: 2
      timeout: 45m
      allowedTools: [Read, "Bash(git diff:*)"]
  quick: [{name: do, command: self}]
"""
ROUND = "# Round the totals\n\nThey show 19.98999.\n"
FILES = {
    "cat-herder.yaml": SETTINGS,
    "Makefile": "test:\n\ttrue\n",
    "README.md": "# Shop\n",
    "tasks/round.md": ROUND,
    "tasks/prices/01-round.md": ROUND,
    "tasks/prices/02-tax.md": "# Show the tax\n",
}
