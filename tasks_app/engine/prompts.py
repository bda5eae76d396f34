"""Gathering what a prompt is made of: from the rows, the workspace and the shipped files."""

from __future__ import annotations

from tasks_app.config.pipeline import FileExistsCheck, NoCheck, ShellCheck, step_from_json
from tasks_app.engine.plan import PLAN_FILE, is_to_plan, plan_before
from tasks_app.git import committed_text, working_text
from tasks_app.models import Question, Step, Task, paths
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.prompting.assembly import HistoryEntry, PromptParts, assemble
from tasks_app.prompting.criteria import CheckWords, Judged
from tasks_app.prompting.instructions import load_step_instructions, repository_place
from tasks_app.prompting.intro import read_interaction_intro
from tasks_app.services.difference import base_of


def step_prompt(step: Step) -> str:
    """The prompt of the step as it is now: with the plan as written and all that was answered so far."""
    task = step.task
    workspace = paths.workspace(task).path
    planned = plan_before(step)
    return assemble(
        PromptParts(
            step=step.name,
            steps=tuple(task.steps.values_list("name", flat=True)),
            task=task.body,
            instructions=_instructions(step),
            sequence_folder=task.sequence.folder if task.sequence else None,
            threshold_text=threshold_text(task),
            plan=planned.plan if planned else None,
            plan_step=planned.name if planned else "plan",
            project_instructions=working_text(workspace, "CLAUDE.md"),
            agents_instructions=working_text(workspace, "AGENTS.md"),
            history=history(task),
            base_commit=base_of(task),
            judged=_judged(step),
        )
    )


def attempts_left_of(step: Step) -> int:
    """How often the step may still be sent back."""
    return max(0, step_from_json(step.config).retry - step.failures)


def _judged(step: Step) -> Judged:
    config = step_from_json(step.config)
    plans = is_to_plan(step)
    checks = tuple(_check_words(check, plans) for check in config.checks if not isinstance(check, NoCheck))
    return Judged(checks, config.allow_write, attempts_left_of(step))


def _check_words(check: FileExistsCheck | ShellCheck, plans: bool) -> CheckWords:
    if isinstance(check, FileExistsCheck):
        return CheckWords(path=check.path, written=check.path == PLAN_FILE and plans)
    return CheckWords(check.command, fails=check.expect == "fail", seconds=check.timeout)


def threshold_text(task: Task) -> str:
    """When and how to ask; nothing for a threshold of 0."""
    return read_interaction_intro(SHIPPED_PROMPTS / "interaction-intro.md").render(task.threshold)


def _instructions(step: Step) -> str:
    """The step's command file as committed where the task began: an agent cannot rewrite its own orders."""
    config = step_from_json(step.config)
    task = step.task
    text = committed_text(
        paths.repository(task.project), commit=task.base_commit, path=repository_place(config.command)
    )
    return load_step_instructions(config.command, repository_text=text, shipped_dir=SHIPPED_PROMPTS / "steps")


def history(task: Task) -> tuple[HistoryEntry, ...]:
    """Every question of the task, and of its sequence, that was settled, in the order of asking."""
    related = Question.objects.filter(task__sequence=task.sequence) if task.sequence else task.questions.all()
    answered = related.settled().select_related("step", "answered_by").order_by("asked_at", "pk")
    if task.sequence:
        answered = answered.select_related("step", "answered_by", "task")
    entries = (_entry(question, in_sequence=bool(task.sequence)) for question in answered)
    return tuple(entry for entry in entries if entry)


def _entry(question: Question, *, in_sequence: bool) -> HistoryEntry | None:
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
        chosen=_chosen(question),
        task=question.task.title if in_sequence else "",
    )


def _chosen(question: Question) -> tuple[tuple[str, str], ...]:
    """The options that a human took, with their descriptions."""
    return tuple(
        (str(option["label"]), str(option.get("description", "")))
        for item in question.items
        for option in item.get("options", [])
        if _is_taken(str(option["label"]), question.answers.get(str(item["question"]), ""))
    )


def _is_taken(label: str, answer: str) -> bool:
    """Several choices stand in one answer, with ", " between them."""
    return answer == label or f", {label}, " in f", {answer}, "
