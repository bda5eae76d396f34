"""The audit room: every row, searchable. What machines or humans wrote as history cannot be changed."""

from tasks_app.admin import people, projects, questions, runs, tasks, trail, transcripts

__all__ = ["people", "projects", "questions", "runs", "tasks", "trail", "transcripts"]
