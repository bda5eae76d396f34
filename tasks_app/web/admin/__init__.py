"""The audit room: every row, searchable. What machines or humans wrote as history cannot be changed."""

from tasks_app.web.admin import (
    audit,
    notifications,
    people,
    projects,
    questions,
    runs,
    tasks,
    tokens,
    trail,
    transcripts,
    workers,
)

__all__ = [
    "audit",
    "notifications",
    "people",
    "projects",
    "questions",
    "runs",
    "tasks",
    "tokens",
    "trail",
    "transcripts",
    "workers",
]
