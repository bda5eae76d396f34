"""JSON models of projects, pipelines and validation."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from tasks_app.config.validation.findings import Finding, Report
from tasks_app.models import Project
from tasks_app.reporting.schemas.base import DateTime, Json, Out


class ProjectOut(Out):
    """A git repository that tasks work on."""

    project: str = Field(description="Its name.")
    source: str = Field(description="Where the repository is: a path, or an https or ssh URL.")
    branch: str = Field(description="The branch that tasks start from.")
    role: str = Field(description="Your role there: viewer, member or maintainer; `admin` for site admins.")
    created_at: DateTime = Field(description="When it was added.")
    fetched_at: DateTime | None = Field(description="When the portal last fetched its source.")
    fetching: bool = Field(description="Whether it is fetching now.")
    fetch_fault: str = Field(description="Why the last fetch failed; empty if it did not.")

    @classmethod
    def of(cls, project: Project, *, role: str) -> Self:
        return cls(
            project=project.name,
            source=project.source,
            branch=project.branch,
            role=role,
            created_at=project.created_at,
            fetched_at=project.fetched_at,
            fetching=project.is_fetching,
            fetch_fault=project.fetch_fault,
        )


class ProjectListed(Out):
    """Output of `manage.py project … --json`."""

    name: str = Field(description="Its name.")
    source: str = Field(description="Where the repository is: a path, or an https or ssh URL.")
    branch: str = Field(description="The branch that tasks start from.")
    tasks: int = Field(description="How many tasks it has.")

    @classmethod
    def of(cls, project: Project, **more: Any) -> Self:
        return cls(
            name=project.name,
            source=project.source,
            branch=project.branch,
            tasks=project.tasks.count(),
            **more,
        )


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
    line: int | None = Field(description="The line; null if it is about the whole file.")
    key: str = Field(description="The key in cat-herder.yaml or in front matter; may be empty.")
    message: str = Field(description="What is wrong there.")
    fixable: bool = Field(description="Whether `manage.py validate --fix` can fix it.")

    @classmethod
    def of(cls, finding: Finding) -> Self:
        problem = finding.problem
        return cls(
            file=finding.file,
            line=problem.line,
            key=problem.key,
            message=problem.sentence,
            fixable=finding.fixable,
        )


class ReportOut(Out):
    """All problems of a repository."""

    ok: bool = Field(description="Whether there are no errors.")
    errors: list[FindingOut] = Field(description="What stops tasks or lets them go wrong.")
    warnings: list[FindingOut] = Field(description="What may be meant.")
    hints: list[FindingOut] = Field(description="Advice; nothing of it keeps tasks from running.")

    @classmethod
    def of(cls, report: Report, **more: Any) -> Self:
        return cls(
            ok=report.ok,
            errors=[FindingOut.of(finding) for finding in report.errors],
            warnings=[FindingOut.of(finding) for finding in report.warnings],
            hints=[FindingOut.of(finding) for finding in report.hints],
            **more,
        )


class Validation(ReportOut):
    commit: str = Field(description="The commit that was looked at.")


class FileWritten(Out):
    file: str = Field(description="The file, seen from the top of the repository.")
    outcome: str = Field(description="Whether it was written, or why not.")
    remark: str = Field(description="More about it; may be empty.")


class InitOutcome(Out):
    """Output of `manage.py init_project --json`."""

    dry_run: bool = Field(description="Whether nothing was written.")
    files: list[FileWritten] = Field(description="The files that a project starts with.")
    not_carried_over: list[str] = Field(description="What of the imported settings was left behind.")
    validation: ReportOut | None = Field(description="What is wrong then; null for a dry run.")


class ReportWithFixes(ReportOut):
    """Output of `manage.py validate --json`."""

    mended: list[str] = Field(description="The files that `--fix` changed.")
