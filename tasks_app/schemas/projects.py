"""JSON models of projects, with their pipelines, files, members and invitations."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.models import MemberGroup, Project, Role, User
from tasks_app.models.account import InvitationState
from tasks_app.schemas.base import DateTime, Json, Out, UserOut


class ProjectOut(Out):
    """A git repository that tasks work on."""

    project: str = Field(validation_alias="name", description="Its name.")
    source: str = Field(description="Where the repository is: a path, or an https or ssh URL.")
    branch: str = Field(description="The branch that tasks start from.")
    role: str = Field(description="Your role there: viewer, member or maintainer; `admin` for site admins.")
    created_at: DateTime = Field(description="When it was added.")
    fetched_at: DateTime | None = Field(description="When the portal last fetched its source.")
    fetching: bool = Field(validation_alias="is_fetching", description="Whether it is fetching now.")
    fetch_fault: str = Field(description="Why the last fetch failed; empty if it did not.")


class ProjectListed(Out):
    """Output of `cat-herder project … --json`."""

    name: str = Field(description="Its name.")
    source: str = Field(description="Where the repository is: a path, or an https or ssh URL.")
    branch: str = Field(description="The branch that tasks start from.")
    tasks: int = Field(description="How many tasks it has.")

    @staticmethod
    def resolve_tasks(project: Project) -> int:
        return project.tasks.count()


class ProjectList(Out):
    projects: list[ProjectListed]


class ProjectFetched(ProjectListed):
    repaired: list[str] = Field(description="What had to be repaired, in sentences.")


class ProjectRemoved(ProjectListed):
    removed: bool = True


class Pipeline(Out):
    """A named list of steps."""

    name: str = Field(description="Its name.")
    steps: list[Json] = Field(description="Its steps, as cat-herder.yaml has them.")
    publish: Json | None = Field(
        description="How results are published when a task is done, as cat-herder.yaml has it; null: they "
        "are not."
    )
    clarify: bool | None = Field(
        description="Whether tasks begin with questions about the goal; null: from a threshold of 3 on, if a "
        "step writes the plan."
    )


class Pipelines(Out):
    default: str = Field(description="The pipeline of tasks that name none.")
    items: list[Pipeline] = Field(description="The project's pipelines.")


class FindingOut(Out):
    """One problem of a repository."""

    file: str = Field(description="The file; empty for the repository as a whole.")
    line: int | None = Field(
        validation_alias="problem.line", description="The line; null if it is about the whole file."
    )
    key: str = Field(
        validation_alias="problem.key",
        description="The key in cat-herder.yaml or in front matter; may be empty.",
    )
    message: str = Field(validation_alias="problem.sentence", description="What is wrong there.")
    fixable: bool = Field(description="Whether `cat-herder validate --fix` can fix it.")


class ReportOut(Out):
    """All problems of a repository."""

    ok: bool = Field(description="Whether there are no errors.")
    errors: list[FindingOut] = Field(description="What stops tasks or lets them go wrong.")
    warnings: list[FindingOut] = Field(description="What may be meant.")
    hints: list[FindingOut] = Field(description="Advice; nothing of it keeps tasks from running.")


class Validation(ReportOut):
    commit: str = Field(description="The commit that was looked at.")


class FileWritten(Out):
    file: str = Field(description="The file, seen from the top of the repository.")
    outcome: str = Field(description="Whether it was written, or why not.")
    remark: str = Field(description="More about it; may be empty.")


class InitOutcome(Out):
    """Output of `cat-herder init_project --json`."""

    dry_run: bool = Field(description="Whether nothing was written.")
    files: list[FileWritten] = Field(description="The files that a project starts with.")
    validation: ReportOut | None = Field(description="What is wrong then; null for a dry run.")


class ReportWithFixes(ReportOut):
    """Output of `cat-herder validate --json`."""

    mended: list[str] = Field(description="The files that `--fix` changed.")


_COMMIT = "The newest commit that the portal has of the project's branch."


class TaskFiles(Out):
    commit: str = Field(description=_COMMIT)
    items: list[str] = Field(description="Paths, seen from the top of the repository.")
    more: int = Field(description="How many were left out.")


class FileText(Out):
    commit: str = Field(description=_COMMIT)
    path: str = Field(description="The file.")
    text: str = Field(description="What is in it.")


class Folder(Out):
    """A folder from which a sequence can be created."""

    folder: str = Field(description="Its path, seen from the top of the repository.")
    tasks: list[str] = Field(description="Its task files in the order in which they would run.")


class Folders(Out):
    commit: str = Field(description=_COMMIT)
    items: list[Folder] = Field(description="Folders by their path.")
    more: int = Field(description="How many were left out.")


class MemberOut(UserOut):
    role: Role = Field(description="viewer, member or maintainer.")


class GroupOut(Out):
    """Members of a project who can be asked together."""

    name: str = Field(description="Its name, which rules, tasks and CODEOWNERS files use.")
    members: list[UserOut] = Field(description="Its members.")

    @staticmethod
    def resolve_members(group: MemberGroup) -> list[User]:
        return list(group.members.all())


class InvitationOut(Out):
    """An invitation to join a project by a link."""

    id: int = Field(validation_alias="pk", description="The invitation's id.")
    email: str = Field(description="The e-mail address that is invited.")
    role: Role = Field(description="The role that it gives.")
    state: InvitationState = Field(description="`open`, or `expired` when its link is too old.")
    invited_by: UserOut | None = Field(description="Who invited.")
    created_at: DateTime = Field(description="When the address was first invited.")
    expires_at: DateTime = Field(description="Until when the link works.")
    mailed: bool = Field(description="Whether the link went to the address by e-mail.")


class InvitationMade(InvitationOut):
    link: str | None = Field(
        description="The link to hand over, if it could not be mailed; it is shown this once. "
        "Null when it was mailed, and when this answer is repeated for its Idempotency-Key."
    )

    def to_keep(self) -> Self:
        """Return a copy to store, without the secret link."""
        return self.model_copy(update={"link": None})
