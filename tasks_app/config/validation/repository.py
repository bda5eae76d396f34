"""Validate a whole repository and report all errors (P1, P2, P5, H2, H12, R5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.validation.findings import Finding, Report, error, findings_in
from tasks_app.config.validation.fresh_clone import fresh_clone_findings
from tasks_app.config.validation.git_state import GitState, git_state
from tasks_app.config.validation.instructions import instruction_findings
from tasks_app.config.validation.permission import permission_findings
from tasks_app.config.validation.repository_context import RepositoryContext, decoded
from tasks_app.config.validation.settings_file import CONFIG_FILE, SettingsFile, read_settings_file
from tasks_app.config.validation.steps import step_findings
from tasks_app.config.validation.task_files import TaskFile, folder_findings, read_task_files
from tasks_app.prompting.intro import intro_faults

_INTRO = "interaction-intro.md"


def validate(
    root: Path,
    *,
    prompts: Path,
    threshold: int = 0,
    with_git: bool = True,
    toolchains: Mapping[str, str] | None = None,
) -> Report:
    """Return everything that is wrong with the repository at `root`.

    `prompts` is the folder of the portal's own prompts, `threshold` the installation's interaction
    threshold, `toolchains` what this machine has, as in RepositoryContext. Without `with_git` the commit is
    not looked at.
    """
    git = git_state(root) if with_git else GitState(())
    context = RepositoryContext(
        root, prompts=prompts, threshold=threshold, tracked=git.tracked, toolchains=toolchains or {}
    )
    return report_on(context, git.findings)


def report_on(context: RepositoryContext, findings: Iterable[Finding] = ()) -> Report:
    """Return what is wrong with the files of a repository, besides what was found already."""
    settings = read_settings_file(context)
    tasks = read_task_files(settings, context)
    found = [*findings, *_contents(settings, tasks, context)]
    return Report.of(found, looked_at=_what_was_checked(settings, tasks, context))


def why_it_may_ask(
    settings: SettingsFile, tasks: Sequence[TaskFile], context: RepositoryContext
) -> str | None:
    """Return where a threshold above 0 comes from, as the rest of a sentence; None if there is none."""
    project = settings.threshold
    if project:
        line = settings.line_of(("interactionThreshold",))
        return f"interactionThreshold is {project} in {CONFIG_FILE}:{line}"
    for task in tasks:
        if task.threshold:
            return f"interactionThreshold is {task.threshold} in {task.name}:{task.threshold_line}"
    if context.threshold and "interactionThreshold" not in settings.values:
        return f"CATHERDER_INTERACTION_THRESHOLD is {context.threshold}"
    return None


def may_ask(context: RepositoryContext) -> bool:
    """Return whether any task of the repository may ask."""
    settings = read_settings_file(context)
    return why_it_may_ask(settings, read_task_files(settings, context), context) is not None


def _contents(
    settings: SettingsFile, tasks: Sequence[TaskFile], context: RepositoryContext
) -> Iterator[Finding]:
    yield from settings.findings
    yield from step_findings(settings, context)
    yield from folder_findings(settings, context)
    yield from fresh_clone_findings(settings, context)
    yield from instruction_findings(context)
    for task in tasks:
        yield from task.findings
    if why := why_it_may_ask(settings, tasks, context):
        yield from permission_findings(context, why=why)
    yield from _intro(context.prompts / _INTRO)


def _intro(path: Path) -> Iterator[Finding]:
    """H2: the instructions for asking are a file that people edit."""
    name = str(path)
    try:
        text = decoded(path.read_bytes(), name=name)
    except ConfigInvalid as fault:
        yield from findings_in(fault, file=name)
        return
    except OSError as fault:
        yield error(name, f"the file cannot be read: {fault.strerror}")
        return
    for one in intro_faults(text):
        yield error(name, one.message, line=one.line)


def _what_was_checked(settings: SettingsFile, tasks: Sequence[TaskFile], context: RepositoryContext) -> str:
    own = (context.root / CONFIG_FILE).exists()
    steps = len(list(settings.steps()))
    pipelines = len(settings.pipelines or ())
    parts = [
        CONFIG_FILE if own else f"no {CONFIG_FILE} (the defaults hold)",
        _counted(pipelines, "pipeline"),
        _counted(steps, "step"),
        _counted(len(tasks), "task file"),
    ]
    return ", ".join(parts)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
