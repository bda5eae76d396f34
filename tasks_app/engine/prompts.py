"""Gathering what a prompt is made of: from the rows, the workspace and the shipped files."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from tasks_app import places
from tasks_app.config.pipeline import step_from_json
from tasks_app.models import Question, Step, Task
from tasks_app.prompting.assembly import HistoryEntry, PromptParts, assemble
from tasks_app.prompting.instructions import load_step_instructions, repository_place
from tasks_app.prompting.intro import read_interaction_intro
from tasks_app.workspace import committed_text, working_text

PLAN_FILE = "PLAN.md"
PROJECT_INSTRUCTIONS_FILE = "CLAUDE.md"


def shipped(name: str) -> Path:
    return Path(settings.BASE_DIR) / "prompts" / name


def step_prompt(step: Step) -> str:
    """The prompt of the step as it is now: with the plan as written and all that was answered so far."""
    task = step.task
    workspace = places.workspace(task).path
    return assemble(
        PromptParts(
            step=step.name,
            steps=tuple(task.steps.values_list("name", flat=True)),
            task=task.body,
            instructions=_instructions(step),
            sequence_folder=task.sequence.folder if task.sequence else None,
            threshold_text=threshold_text(task),
            plan=working_text(workspace, PLAN_FILE),
            project_instructions=working_text(workspace, PROJECT_INSTRUCTIONS_FILE),
            history=history(task),
        )
    )


def threshold_text(task: Task) -> str:
    """When and how to ask; nothing for a threshold of 0."""
    return read_interaction_intro(shipped("interaction-intro.md")).render(task.threshold)


def _instructions(step: Step) -> str:
    """The step's command file as committed where the task began: an agent cannot rewrite its own orders."""
    config = step_from_json(step.config)
    task = step.task
    text = committed_text(
        places.repository(task.project), commit=task.base_commit, path=repository_place(config.command)
    )
    return load_step_instructions(config.command, repository_text=text, shipped_dir=shipped("steps"))


def history(task: Task) -> tuple[HistoryEntry, ...]:
    """Every question of the task, and of its sequence, that was settled, in the order of asking."""
    related = Question.objects.filter(task__sequence=task.sequence) if task.sequence else task.questions.all()
    answered = related.settled().select_related("step", "answered_by").order_by("asked_at", "pk")
    return tuple(entry for question in answered if (entry := _entry(question)))


def _entry(question: Question) -> HistoryEntry | None:
    if question.answered_at is None:
        return None
    return HistoryEntry(
        step=question.step.name,
        asked_at=question.asked_at,
        answered_at=question.answered_at,
        answered_by=question.answered_by.shown_name if question.answered_by else "somebody",
        question="\n".join(str(item["question"]) for item in question.items),
        answer=question.answer_text,
        outcome=question.outcome,
    )
