"""Tasks that reach their soft cost limit: each turn of the fake agent costs a cent."""

from __future__ import annotations

from typing import Any

from tasks_app.models import Question, QuestionKind, Task

#: Reached with the first turn.
LIMIT = "limits: {softCostUsd: 0.005}\n"
ONE_STEP = f"""\
{LIMIT}pipelines:
  default:
    - name: do
      command: self
"""


def two_steps(*, limits: str = "", plan: str = "") -> str:
    """Return a project file whose pipeline plans and implements.

    `limits` are more keys of the limits, `plan` more keys of the first step, each after a comma.
    """
    return f"""\
limits: {{softCostUsd: 0.005{limits}}}
pipelines:
  default:
    clarify: false
    steps:
      - {{name: plan, command: plan-task{plan}}}
      - {{name: implement, command: implement}}
"""


def cost_question(task: Task) -> Question:
    """Return the open question about the task's cost."""
    question: Question = task.questions.open().get(kind=QuestionKind.COST)
    return question


def without_undo(settings: Any) -> None:
    """Let answers count at once."""
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 0})
