"""The commits that rows name: the portal's repository must keep them, also those that no branch leads to."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Model, Q

from tasks_app.models import (
    Project,
    Publication,
    PullRequest,
    Review,
    ReviewThread,
    Run,
    Sequence,
    Step,
    Task,
)

#: Each model with commits, how it leads to its project, and its fields that name one.
FIELDS: tuple[tuple[type[Model], str, tuple[str, ...]], ...] = (
    (Task, "project", ("base_commit", "head_commit", "merged_commit", "reset_to")),
    (Sequence, "project", ("base_commit", "head_commit")),
    (Step, "task__project", ("base_commit", "head_commit")),
    (Run, "step__task__project", ("head_commit", "checked_commit")),
    (Review, "task__project", ("commit",)),
    (ReviewThread, "task__project", ("commit",)),
    (Publication, "task__project", ("commit", "merged_commit", "published_commit")),
    (PullRequest, "project", ("head_commit",)),
)


def named_commits(project: Project) -> Iterator[str]:
    """Yield the commits that the project's rows name, some of them several times."""
    for model, leads_to, fields in FIELDS:
        for field in fields:
            rows = model._default_manager.filter(Q(**{leads_to: project})).exclude(**{field: ""})
            yield from rows.values_list(field, flat=True).distinct().iterator()
