"""What users have replied in forms to questions that wait for more of their answer."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F

from tasks_app.models.question import Question
from tasks_app.models.user import User


class AnswerDraft(models.Model):
    """The replies of a user to the forms of a question. Only they see it.

    `answers` has the answer to each item that they have replied to, by the item's question, until all of
    them have one. `replies` counts their replies, also those that were not usable.
    """

    question = models.ForeignKey(Question, on_delete=models.CASCADE, related_name="drafts", db_index=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    answers = models.JSONField(default=dict, blank=True)
    notes = models.TextField(blank=True)
    replies = models.PositiveIntegerField(default=0)
    problem = models.TextField(blank=True, help_text="Why the last reply was not usable.")
    declined = models.BooleanField(default=False, help_text="Whether the last form was declined.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["question", "user"], name="one_draft_per_user")]

    def __str__(self) -> str:
        return f"Draft of {self.user} for {self.question}"

    def count_reply(self, **values: Any) -> bool:
        """Store `values` with one more reply. Return False if another reply was stored since it was read."""
        unchanged = AnswerDraft.objects.filter(
            question=self.question_id, user=self.user_id, replies=self.replies
        )
        values = {"problem": "", "declined": False, **values}
        return unchanged.update(replies=F("replies") + 1, **values) == 1
