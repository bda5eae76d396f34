"""Results of tasks for tests of publishing, made with git alone: a run of an agent costs far more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.models import Project, Publication, Task, paths
from tasks_app.permissions import Principal
from tasks_app.services.publishing.publications import publish
from tests.factories import TaskFactory
from tests.git_servers import bare_repository
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner


@dataclass(frozen=True)
class Result:
    """A task that is done, the source of its project, and the repository that it publishes to."""

    task: Task
    source: GitRepository
    remote: GitRepository
    runner: Runner

    @property
    def by(self) -> Principal:
        return acting(self.runner.user)

    def publish(self, **options: Any) -> Publication:
        """Ask for a publication and carry it out."""
        publication = publish(self.task, by=self.by, **options)
        carry_out(publication.pk)
        publication.refresh_from_db()
        return publication

    def work_on(self, *texts: str) -> None:
        """Let each text be `paint.txt` in a checkpoint of the task, the last of them in its result."""
        source, own = self.source, paths.repository(self.task.project).path
        source.git("checkout", "--quiet", "--detach", self.task.head_commit)
        for text in texts:
            self.task.head_commit = source.commit(**{"paint.txt": text})
        source.git("push", "--quiet", "--force", str(own), f"HEAD:refs/heads/{self.task.branch}")
        source.git("checkout", "--quiet", "main")
        self.task.save(update_fields=["head_commit"])

    @property
    def head(self) -> str:
        """The commit of the branch at the remote; "" if it has none."""
        return self.remote.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{self.task.branch}")


def make_result(runner: Runner, *, url: str = "") -> Result:
    """Make a result of two checkpoints. It is published to `url`, else to a bare repository of its own."""
    project = runner.project()
    source = GitRepository(Path(project.source))
    remote = GitRepository(bare_repository(runner.folder / "remote.git"))
    source.git("push", "--quiet", str(remote.path), "HEAD:main")
    Project.objects.filter(pk=project.pk).update(publish_url=url or str(remote.path))
    project.refresh_from_db()
    base = source.git("rev-parse", "HEAD")
    task = TaskFactory.create(
        project=project, title="Paint it", slug="paint-it", body="# Paint it\n\nIn some colour.\n",
        phase=Phase.DONE, base_commit=base, head_commit=base,
    )  # fmt: skip
    result = Result(task, source, remote, runner)
    result.work_on("green\n", "blue\n")
    return result
