"""The admin pages: every row, searchable. History that machines or humans wrote is read-only.

Each kind of row has its module, however short; Django only needs them to be imported here.
"""

from tasks_app.web.admin import (
    audit,
    day_sums,
    decisions,
    notifications,
    projects,
    publications,
    questions,
    reviews,
    runs,
    tasks,
    tokens,
    transcripts,
    transitions,
    users,
    workers,
)

__all__ = [
    "audit",
    "day_sums",
    "decisions",
    "notifications",
    "projects",
    "publications",
    "questions",
    "reviews",
    "runs",
    "tasks",
    "tokens",
    "transcripts",
    "transitions",
    "users",
    "workers",
]
