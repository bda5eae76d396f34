"""What is compared of answered questions, so that similar ones are found."""

from __future__ import annotations

from django.db import models

from tasks_app.models.project import Project
from tasks_app.models.question import Question


class IndexedAnswer(models.Model):
    """An answered clarification in the index of earlier answers.

    Written and deleted with the answer. `reporting/search/schema.py` makes the full text index of `words`.
    """

    question = models.OneToOneField(Question, on_delete=models.CASCADE, related_name="indexed_answer")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    question_key = models.CharField(max_length=32, help_text="Equal for questions that are the same.")
    words = models.TextField(help_text="Digests of the question's words, each with its project.")

    class Meta:
        indexes = [
            models.Index(fields=["project", "question"], name="answers_of_project"),
            models.Index(fields=["project", "question_key", "question"], name="answers_of_same_question"),
        ]

    def __str__(self) -> str:
        return f"Answer to {self.question}"
