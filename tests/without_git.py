"""The engine without workspaces: for tests of rows and leases that let hundreds of runs happen.

Everything that reads or writes files of a repository does nothing; every write to the database is the real
one, in the real order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks_app.engine import advance
from tasks_app.engine.prompts import values
from tasks_app.engine.runs import judging, steps
from tasks_app.engine.workspaces.recording import Recorded
from tasks_app.models import Membership, Project, Role, Task, User, paths
from tests.factories import ProjectFactory, TaskFactory
from tests.fake_agent import FakeAgent
from tests.runner import Runner


def leave_out_git(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*args: object, **more: object) -> None: ...

    def recorded(*args: object) -> Recorded:
        return Recorded()

    for module in (steps, judging):
        monkeypatch.setattr(module, "record_work", recorded)
    for module, names in {
        steps: ("begin_plan", "kill_earlier_processes"),
        judging: ("store_plan", "commit_checkpoint", "leave_out_plan"),
        advance: ("tidy_repository",),
        values: ("committed_text_behind_links",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, nothing)
    monkeypatch.setattr(values, "paths_named", lambda *args, **more: [])
    monkeypatch.setattr(steps, "prepare_workspace", _folders_only)


def _folders_only(step: Any, last: object, lease: object, context: object) -> None:
    for folder in (paths.workspace(step.task).path, paths.home(step.task)):
        folder.mkdir(parents=True, exist_ok=True)


class Rows(Runner):
    """A runner whose projects and tasks are only rows."""

    @classmethod
    def of(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
        leave_out_git(monkeypatch)
        return cls(folder, User.objects.create_user("ann", is_superuser=True), FakeAgent(lambda prompt: []))

    def member(self, project: Project, name: str) -> User:
        person = User.objects.create_user(name)
        Membership.objects.create(user=person, project=project, role=Role.MEMBER)
        return person

    def rows(self, *names: str, project: Project | None = None, **fields: Any) -> Task:
        """A task with these steps, not started unless `queued_at` says so."""
        task: Task = TaskFactory.create(
            project=project or ProjectFactory.create(), steps=names or ("do",), created_by=self.user, **fields
        )
        for step in task.steps.all():
            step.config, step.plan = {"name": step.name, "command": "implement", "retry": 1}, None
            step.save()
        return task
