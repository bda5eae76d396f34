"""Collecting the parts of a prompt from the rows, the workspace and the shipped files."""

from __future__ import annotations

from functools import lru_cache

from tasks_app.config.check import FileExistsCheck, NoCheck
from tasks_app.config.pipeline import step_from_json
from tasks_app.config.planning import PLAN_FILE
from tasks_app.engine.planning import clarifying
from tasks_app.engine.planning.plan import is_plan_step, plan_before
from tasks_app.git import Repository, committed_text, working_text
from tasks_app.models import Question, Step, Task, paths
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.prompting.assembly import HistoryEntry, PromptParts, assemble
from tasks_app.prompting.criteria import Criteria, DescribedCheck
from tasks_app.prompting.instructions import load_step_instructions, repository_path
from tasks_app.prompting.intro import read_interaction_intro
from tasks_app.services.decisions.scope import decisions_for, listed_in_prompt
from tasks_app.services.difference import base_of


def step_prompt(step: Step) -> str:
    """Return the step's prompt as of now, with the current plan and all answers so far."""
    task = step.task
    workspace = paths.workspace(task).path
    planned = plan_before(step)
    decisions = decisions_for(step)
    listed = listed_in_prompt(decisions)
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
            criteria=_criteria(step),
            decisions=tuple(listed),
            more_decisions=len(decisions) - len(listed),
            findings=clarifying.findings_for(step),
        )
    )


def attempts_left_of(step: Step) -> int:
    """Return how many further attempts the step has."""
    return max(0, step_from_json(step.config).retry - step.failures)


def _criteria(step: Step) -> Criteria:
    config = step_from_json(step.config)
    writes_plan = is_plan_step(step)
    checks = tuple(
        DescribedCheck(path=check.path, by_this_step=check.path == PLAN_FILE and writes_plan)
        if isinstance(check, FileExistsCheck)
        else DescribedCheck(check.command, fails=check.expect == "fail", seconds=check.timeout)
        for check in config.checks
        if not isinstance(check, NoCheck)
    )
    return Criteria(checks, config.allow_write, attempts_left_of(step))


def threshold_text(task: Task) -> str:
    """Return when and how to ask; empty for a threshold of 0."""
    return read_interaction_intro(SHIPPED_PROMPTS / "interaction-intro.md").render(task.threshold)


def _instructions(step: Step) -> str:
    """Return the step's command file as of the task's start, so that agents cannot rewrite their orders."""
    if step.is_clarifying:
        return clarifying.instructions()
    config = step_from_json(step.config)
    task = step.task
    path = repository_path(config.command)
    text = _text_in_commit(paths.repository(task.project), task.base_commit, path)
    return load_step_instructions(config.command, repository_text=text, shipped_dir=SHIPPED_PROMPTS / "steps")


@lru_cache(maxsize=32)
def _text_in_commit(repository: Repository, commit: str, path: str) -> str | None:
    """Return a file of a commit, which never changes: tasks that began there need it for each step."""
    return committed_text(repository, commit=commit, path=path)


def history(task: Task) -> tuple[HistoryEntry, ...]:
    """Return every settled question of agents in the task, or in its sequence, in the order of asking."""
    related = Question.objects.filter(task__sequence=task.sequence) if task.sequence else task.questions.all()
    answered = related.of_agents().settled().in_force().order_by("asked_at", "pk")
    shown_with = ["step", "answered_by", "applied", *(["task"] if task.sequence else [])]
    answered = answered.select_related(*shown_with)
    entries = (_history_entry(question, in_sequence=bool(task.sequence)) for question in answered)
    return tuple(entry for entry in entries if entry)


def _history_entry(question: Question, *, in_sequence: bool) -> HistoryEntry | None:
    if question.answered_at is None:
        return None
    return HistoryEntry(
        step=question.step.name,
        asked_at=question.asked_at,
        answered_at=question.answered_at,
        answered_by=question.answerer or "somebody",
        question="\n".join(str(item["question"]) for item in question.items),
        answer=question.answer_text,
        outcome=question.outcome,
        chosen=_chosen_options(question),
        task=question.task.title if in_sequence else "",
    )


def _chosen_options(question: Question) -> tuple[tuple[str, str], ...]:
    """Return label and description of the options that a human chose."""
    # Several choices stand in one answer, with ", " between them.
    return tuple(
        (str(option["label"]), str(option.get("description", "")))
        for item in question.items
        for option in item.get("options", [])
        if f", {option['label']}, " in f", {question.answers.get(str(item['question']), '')}, "
    )
