"""Collecting the parts of a prompt from the rows, the workspace and the shipped files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.agent.gate.patterns import CALL_PATTERN, WRITING
from tasks_app.config.pipeline import FileExistsCheck, NoCheck, step_from_json
from tasks_app.config.repository_settings import setup_from_json
from tasks_app.core.asked_items import chosen_options, sentence_asked
from tasks_app.core.text import shortened
from tasks_app.core.types import PLAN_FILE
from tasks_app.engine.planning.plan import (
    approvals_that_count,
    clarifying_instructions,
    differs_from_approved,
    is_plan_step,
    plan_before,
)
from tasks_app.git import Repository, committed_text_behind_links, linked_text, paths_named
from tasks_app.history.events.calls import failed_approvals
from tasks_app.models import Decision, Question, QuestionKind, QuestionState, Step, Task, Verdict, paths
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.prompting.assembly import EarlierAccount, HistoryEntry, PromptParts, assemble
from tasks_app.prompting.criteria import Criteria, DescribedCheck
from tasks_app.prompting.instructions import (
    INSTRUCTION_FILES,
    ProjectInstructions,
    load_step_instructions,
    read_interaction_intro,
    repository_path,
)
from tasks_app.prompting.no_answer import ended_by_rule
from tasks_app.services.decisions.answering import decided_by_answers
from tasks_app.services.decisions.content import listed_in_prompt
from tasks_app.services.difference import base_of
from tasks_app.services.results import accounts_of
from tasks_app.services.workers.hosts import network_of

#: Characters of a question that name it among others on its card.
_SHOWN_OF_QUESTION = 80


def step_prompt(step: Step, decisions: Sequence[Decision]) -> str:
    """Return the step's prompt as of now, with the current plan, the decisions and all answers so far."""
    task = step.task
    workspace = paths.workspace(task).path
    planned = plan_before(step)
    listed = listed_in_prompt(decisions, task)
    folder = task.sequence.folder if task.sequence else None
    globs = step_from_json(step.config).allow_write
    instructions = ProjectInstructions(
        partial(linked_text, workspace), _instruction_files(paths.repository(task.project), task.base_commit)
    )
    return assemble(
        PromptParts(
            step=step.name,
            steps=tuple(one.name for one in task.steps.all()),
            task=task.body,
            instructions=_instructions(step),
            sequence_folder=folder,
            may_add_tasks=folder is not None and (globs is None or allowed(f"{folder}/99-name.md", globs)),
            setup=setup_from_json(task.setup).run if task.setup else (),
            threshold_text=threshold_text(task),
            plan=planned.plan if planned else None,
            plan_step=planned.name if planned else "plan",
            plan_file_differs=planned is not None and differs_from_approved(planned),
            plan_mode=plans_first(step),
            project_instructions=instructions.root.get("CLAUDE.md"),
            agents_instructions=instructions.root.get("AGENTS.md"),
            more_instructions=tuple(instructions.more),
            listed_instructions=tuple(instructions.listed),
            history=history(task),
            base_commit="" if step.is_clarifying else base_of(task),  # nothing has been changed yet
            criteria=_criteria(step),
            decisions=tuple(listed),
            more_decisions=len(decisions) - len(listed),
            accounts=_earlier_accounts(step),
        )
    )


def _earlier_accounts(step: Step) -> tuple[EarlierAccount, ...]:
    """Return what agents said at their ends: of earlier steps, and of this one before it was retried.

    The agents of all earlier tasks of the sequence are heard too, before those of this task.
    """
    task = step.task
    before = list(task.sequence.tasks.filter(pk__lt=task.pk)) if task.sequence else []
    messages = [message for account in accounts_of([*before, task]) for message in account.messages]
    earlier = []
    for message in messages:
        run = message.run
        if run.step_id == step.pk and run.number >= step.first_run:
            continue
        if run.step.task_id == step.task_id and run.step.position > step.position:
            continue
        earlier.append(message)
    earlier.sort(key=lambda message: (message.run.step.task_id, message.run.pk))
    return tuple(
        EarlierAccount(
            one.run.step.name,
            one.text,
            task="" if one.run.step.task_id == task.pk else one.run.step.task.title,
            check_failed=one.check_failed,
        )
        for one in earlier
    )


def plans_first(step: Step) -> bool:
    """Return whether the next run of the step begins in plan mode: a plan of its runs is to be approved."""
    return step_from_json(step.config).plan_approval and not approvals_that_count(step).exists()


def attempts_left_of(step: Step) -> int:
    """Return how many further attempts the step has."""
    return max(0, step_from_json(step.config).retry - step.failures)


def _criteria(step: Step) -> Criteria:
    config = step_from_json(step.config)
    writes_plan = is_plan_step(step)
    ask_before, allowed_tools = (*step.task.ask_before, *config.ask_before), config.allowed_tools
    shell_rules = None
    if allowed_tools is not None and "Bash" not in allowed_tools:
        shell_rules = tuple(rule for rule in allowed_tools if rule.startswith("Bash("))
    checks = []
    if config.plan_approval and writes_plan:
        checks.append(DescribedCheck(path=PLAN_FILE, as_approved=True))
    for check in config.checks:
        if isinstance(check, FileExistsCheck):
            by_this_step = check.path == PLAN_FILE and writes_plan
            checks.append(DescribedCheck(path=check.path, by_this_step=by_this_step))
        elif not isinstance(check, NoCheck):
            fails = check.expect == "fail"
            checks.append(DescribedCheck(check.command, fails=fails, seconds=check.timeout))
    return Criteria(
        tuple(checks),
        config.allow_write,
        attempts_left_of(step),
        shell_rules=shell_rules,
        ask_before=tuple(
            pattern for pattern in ask_before if not _names_other_file(pattern, config.allow_write)
        ),
        has_network=network_of(step) == "full",
        # As in `ClaudeAgent`: a shell that only reads would read what a person is to approve.
        has_shell=shell_rules != ()
        or step.task.threshold > 0
        or not any(pattern.startswith("Read(") for pattern in ask_before),
    )


def _names_other_file(pattern: str, allow_write: tuple[str, ...] | None) -> bool:
    """Return whether the pattern names one file that the step may not write, so that nobody is asked."""
    found = CALL_PATTERN.match(pattern)
    if allow_write is None or found is None or found[1] not in WRITING or not found[2]:
        return False
    return not re.search(r"[*?\[{]", found[2]) and not allowed(found[2], list(allow_write))


def threshold_text(task: Task) -> str:
    """Return when and how to ask; empty for a threshold of 0."""
    return read_interaction_intro(SHIPPED_PROMPTS / "interaction-intro.md").render(task.threshold)


def _instructions(step: Step) -> str:
    """Return the step's command file as of the task's start, so that agents cannot rewrite their orders."""
    if step.is_clarifying:
        return clarifying_instructions()
    config = step_from_json(step.config)
    task = step.task
    path = repository_path(config.command)
    text = _text_in_commit(paths.repository(task.project), task.base_commit, path)
    return load_step_instructions(config.command, repository_text=text, shipped_dir=SHIPPED_PROMPTS / "steps")


@lru_cache(maxsize=32)
def _instruction_files(repository: Repository, commit: str) -> list[str]:
    """Return the files that may hold instructions, as of the task's start: agents may not add to them."""
    return paths_named(repository, commit=commit, wanted=INSTRUCTION_FILES)


@lru_cache(maxsize=32)
def _text_in_commit(repository: Repository, commit: str, path: str) -> str | None:
    """Return a file of a commit, which never changes: tasks that began there need it for each step."""
    return committed_text_behind_links(repository, commit=commit, path=path)


def history(task: Task) -> tuple[HistoryEntry, ...]:
    """Return every settled question of agents in the task, or in its sequence, in the order of asking.

    With them what people noted when they answered the portal's questions about costs, once an agent has been
    told: the first one hears it in a note of its own.
    """
    related = task.questions.all()
    if task.sequence:
        related = Question.objects.filter(task__sequence=task.sequence)
    related = related.exclude(kind=QuestionKind.COST, notes="")
    settled = related.exclude(kind=QuestionKind.COST, delivered_at=None).settled().in_force()
    rows = settled.select_related("step", "answered_by", "applied", "task").order_by("asked_at", "pk")
    questions = list(rows)
    since = _since(questions)
    entries = []
    for question in questions:
        if question.answered_at is None:  # a settled one has it
            continue
        (asked, answer), *further = question.asked_and_answered
        entries.append(
            HistoryEntry(
                step=question.step.name,
                asked_at=question.asked_at,
                answered_at=question.answered_at,
                answered_by=question.answerer or "somebody",
                question=asked,
                answer=answer,
                further=tuple(further),
                outcome=question.outcome,
                chosen=tuple(
                    option
                    for item in question.items
                    for option in chosen_options(item, question.answers.get(str(item["question"]), ""))
                ),
                task=question.task.title if task.sequence else "",
                kind=question.kind,
                since=since.get(question.pk, ""),
                ended=ended_in_words(question),
            )
        )
    return tuple(entries)


def ended_in_words(question: Question) -> str:
    """Return that a rule ended the question without an answer, as the agent reads it; "" otherwise."""
    if not question.is_unanswered or question.answered_at is None:
        return ""
    return ended_by_rule(question.ended_by_rule, question.answered_at)


def _since(questions: Sequence[Question]) -> dict[int, str]:
    """Return a sentence on what has become of an answer since, by the question's id.

    It was asked again and answered otherwise, another plan was approved later, the decision that it made does
    not hold any more, or the approved call has failed. The questions are numbered as in the history.
    """
    failed, made = failed_approvals(questions), decided_by_answers(questions)
    newest: dict[str, tuple[int, Question]] = {}
    found = dict.fromkeys(failed, "The call was made, and failed.")
    for number, one in reversed(list(enumerate(questions, start=1))):
        became = []
        for asked, decided in made.get(one.pk, {}).items():
            sentence, which = sentence_asked({"question": asked}), "It"
            if len(one.items) > 1:
                which = f"The answer to “{shortened(sentence, _SHOWN_OF_QUESTION)}”"
            for _, decision in decided:
                if decision.question_id == one.pk and not decision.is_active:
                    became.append(f"{which} became {decision.label}, which is {decision.state_in_words} now.")
        if became:
            found[one.pk] = " ".join(became)
        if one.verdict == Verdict.APPROVED and one.kind == QuestionKind.PLAN:
            subject, said = f"plan of step {one.step_id}", "Another plan was approved later: see {}."
        elif one.state == QuestionState.ANSWERED and one.item_keys:
            subject = f"{one.task_id} {one.item_keys}"
            said = "It was asked again and answered otherwise: {} holds."
        else:
            continue
        number_of_newest, later = newest.setdefault(subject, (number, one))
        if later.answers != one.answers or later.plan != one.plan:
            found[one.pk] = said.format(number_of_newest)
    return found
