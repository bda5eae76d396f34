"""Settings, pipelines and problems of a repository at the newest fetched commit."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from django.conf import settings

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import (
    Check,
    FileExistsCheck,
    ProjectConfig,
    ShellCheck,
    StepConfig,
    choose_pipeline,
    load_project_config,
)
from tasks_app.config.planning import clarified_from
from tasks_app.config.project_settings import SETTINGS, Overrides, effective, file_key, is_set
from tasks_app.config.starter import settings_text
from tasks_app.config.validation import Finding, Report, Severity, laid_out, validate_commit
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.amounts import duration_in_words
from tasks_app.core.errors import BadInput, CatHerderError, WorkspaceError
from tasks_app.core.types import Network, least_network
from tasks_app.engine.workers.machine import toolchains_of_machine
from tasks_app.git import CommitSummary, Repository, TreeFile, committed_text, committed_tree
from tasks_app.models import Project, paths
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.prompting.instructions import SELF, repository_path
from tasks_app.services.projects.settings import CONFIG_FILE, default_threshold, overrides_of
from tasks_app.services.publishing.publications import publishing_findings
from tasks_app.web.frame import sandbox
from tasks_app.web.publishing import publishing_in_words

_SHOWN_LINES = 2000
_SHOWN_COLUMNS = 400
#: What is installed on the machine may change while the commit does not.
_REMEMBERED_SECONDS = 300

_WORDS = {"error": ("cross", "Error"), "warning": ("warning", "Warning"), "note": ("note", "Note")}


@dataclass(frozen=True)
class ShownFinding:
    """A shown finding. `line` is one of cat-herder.yaml, else `place` says where it is."""

    tone: str
    sentence: str
    place: str = ""
    line: int | None = None

    @property
    def icon(self) -> str:
        return _WORDS[self.tone][0]

    @property
    def word(self) -> str:
        return _WORDS[self.tone][1]


@dataclass(frozen=True)
class Line:
    """A line of cat-herder.yaml with its findings."""

    number: int
    text: str
    findings: tuple[ShownFinding, ...]


@dataclass(frozen=True)
class ShownCheck:
    """A check as icon, code and text."""

    icon: str
    code: str
    words: str


@dataclass(frozen=True)
class ShownStep:
    """A step of a pipeline with its checks and guards, as text."""

    step: StepConfig
    prompt: str
    model: str
    checks: tuple[ShownCheck, ...]
    plan_approval: bool
    ask_before: tuple[str, ...]
    network: Network
    #: Why the network cannot be blocked on this machine.
    network_fault: str


@dataclass(frozen=True)
class ShownPipeline:
    """A pipeline; `is_default`: whether tasks use it by default; `publishing`: what it does with results.

    `clarified_from` is the threshold from which on its tasks begin with questions; None: they never do.
    """

    name: str
    steps: tuple[ShownStep, ...]
    is_default: bool
    publishing: str
    clarified_from: int | None


@dataclass(frozen=True)
class ProjectAtHead:
    """A project's repository at the newest commit of its branch, as last fetched."""

    project: Project
    commit: CommitSummary

    @property
    def repository(self) -> Repository:
        return paths.repository(self.project)

    @cached_property
    def _settings_file(self) -> tuple[str | None, ProjectConfig | None]:
        try:
            return _settings_file(self.repository, self.commit.commit)
        except WorkspaceError:
            return "", None

    @property
    def text(self) -> str | None:
        """The text of cat-herder.yaml; None if it is missing, "" if it is too large."""
        return self._settings_file[0]

    @cached_property
    def files(self) -> tuple[TreeFile, ...]:
        return committed_tree(self.repository, commit=self.commit.commit)

    @property
    def file_config(self) -> ProjectConfig | None:
        """The settings of the file; None if it has errors."""
        return self._settings_file[1]

    @cached_property
    def overrides(self) -> Overrides:
        return overrides_of(self.project)

    @cached_property
    def config(self) -> ProjectConfig | None:
        """The effective settings; None if the file has errors."""
        if self.file_config is None:
            return None
        return effective(self.file_config, self.overrides)

    @cached_property
    def default_pipeline(self) -> str:
        """The default pipeline; "" if it does not exist."""
        if self.config is None:
            return ""
        try:
            return choose_pipeline(self.config, explicit=None, task=None).name
        except BadInput:
            return ""

    @cached_property
    def pipelines(self) -> list[ShownPipeline]:
        if self.config is None:
            return []
        config = self.config
        prompts = sorted({repository_path(step.command) for one in config.pipelines for step in one.steps})
        own = _files_among(self.repository, self.commit.commit, tuple(prompts))
        return [
            ShownPipeline(
                one.name,
                tuple(_shown(step, config, own) for step in one.steps),
                one.name == self.default_pipeline,
                publishing_in_words(one.publish),
                clarified_from(one),
            )
            for one in config.pipelines
        ]

    @cached_property
    def report(self) -> Report:
        moment = int(time.time() // _REMEMBERED_SECONDS)
        return _report(self.repository, self.commit.commit, default_threshold(self.project), moment)

    @cached_property
    def findings(self) -> list[ShownFinding]:
        """All findings, the most severe first."""
        found = [_shown_finding(one) for one in self.report.findings]
        order = list(_WORDS)
        return sorted([*found, *self._notes()], key=lambda one: order.index(one.tone))

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of cat-herder.yaml with their findings, up to a limit."""
        at: dict[int, list[ShownFinding]] = {}
        for one in self.findings:
            if one.line:
                at.setdefault(one.line, []).append(one)
        shown = (self.text or "").splitlines()[:_SHOWN_LINES]
        return [
            Line(number, _cut(line), tuple(at.get(number, ()))) for number, line in enumerate(shown, start=1)
        ]

    @property
    def lines_left_out(self) -> int:
        return max(0, len((self.text or "").splitlines()) - _SHOWN_LINES)

    @cached_property
    def starter(self) -> str:
        """A first cat-herder.yaml for a repository that has none."""
        return _starter(self.repository, self.commit.commit)

    def _notes(self) -> Iterable[ShownFinding]:
        yield from map(_shown_finding, publishing_findings(self.project, self.text))
        if self.config and not self.default_pipeline:
            name = self.config.default_pipeline
            yield ShownFinding(
                "error",
                f"The override sets the default pipeline “{name}”, which is not in the file.",
                "settings",
            )
        if self.text is not None and self.file_config is not None:
            yield from _overridden(self.text, self.overrides)


def at_head(project: Project) -> ProjectAtHead:
    """Return the repository at its newest commit. Raises CatHerderError if nothing was fetched."""
    repository = paths.repository(project)
    if not repository.path.exists():
        raise CatHerderError("The source has not been fetched yet.")
    return ProjectAtHead(project, repository.summary(repository.head(project.branch)))


def _overridden(text: str, overrides: Overrides) -> Iterable[ShownFinding]:
    lines = read_yaml(text, where=CONFIG_FILE).lines
    for name, setting in SETTINGS.items():
        key = file_key(setting)
        if key and is_set(getattr(overrides, name)) and (line := lines.get(key)):
            sentence = f"{'.'.join(key)} is overridden in the portal’s settings."
            yield ShownFinding("note", sentence, CONFIG_FILE, line)


#: Commits of which a process remembers what it has read: git and YAML take longer than the rest of a page.
_REMEMBERED_COMMITS = 64


@lru_cache(maxsize=_REMEMBERED_COMMITS)
def _settings_file(repository: Repository, commit: str) -> tuple[str | None, ProjectConfig | None]:
    """Return the text of cat-herder.yaml, and its settings unless it has errors. Raises WorkspaceError."""
    text = committed_text(repository, commit=commit, path=CONFIG_FILE)
    try:
        return text, load_project_config(text, where=CONFIG_FILE)
    except ConfigInvalid:
        return text, None


@lru_cache(maxsize=_REMEMBERED_COMMITS)
def _files_among(repository: Repository, commit: str, paths: tuple[str, ...]) -> frozenset[str]:
    """Return those of the paths that are files in the commit."""
    return frozenset(file.path for file in committed_tree(repository, commit=commit, paths=paths))


_TONES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.HINT: "note"}


def _shown_finding(finding: Finding) -> ShownFinding:
    problem = finding.problem
    tone = _TONES[finding.severity]
    here = finding.file == CONFIG_FILE
    place = finding.file.removeprefix(f"{settings.BASE_DIR}/")
    if problem.line and not here:
        place += f":{problem.line}"
    sentence = problem.sentence.replace(f"{settings.BASE_DIR}/", "")  # not for everybody to know
    return ShownFinding(tone, sentence, place, problem.line if here else None)


def _cut(line: str) -> str:
    if len(line) <= _SHOWN_COLUMNS:
        return line
    return f"{line[:_SHOWN_COLUMNS]} …"


def _shown(step: StepConfig, config: ProjectConfig, own: frozenset[str]) -> ShownStep:
    network = least_network(config.network_of(step), settings.ENVIRONMENT.network)
    network_fault = ""
    if network != "full" and not sandbox().keeps_network_out:
        network_fault = sandbox().reason or sandbox().network_reason
    return ShownStep(
        step,
        prompt=_prompt(step.command, own),
        model=step.model or config.model or "",
        checks=tuple(_shown_check(check) for check in step.checks),
        plan_approval=step.plan_approval,
        ask_before=(*config.ask_before, *step.ask_before),
        network=network,
        network_fault=network_fault,
    )


def _prompt(command: str, own: frozenset[str]) -> str:
    if command == SELF:
        return "Prompt: the task’s own text"
    place = repository_path(command)
    if place in own:
        return f"Prompt: {place}"
    return f"Built-in prompt: {command}"


def _shown_check(check: Check) -> ShownCheck:
    match check:
        case FileExistsCheck():
            return ShownCheck("file", check.path, "exists")
        case ShellCheck():
            expected = "passes" if check.expect == "pass" else "fails"
            if check.timeout:
                expected += f" within {duration_in_words(check.timeout)}"
            return ShownCheck("terminal", check.command, expected)
    return ShownCheck("check", "", "No check: done when the agent stops")


@lru_cache(maxsize=64)
def _report(repository: Repository, commit: str, threshold: int, moment: int) -> Report:
    return validate_commit(
        repository,
        commit,
        prompts=SHIPPED_PROMPTS,
        threshold=threshold,
        toolchains=toolchains_of_machine(),
    )


@lru_cache(maxsize=16)
def _starter(repository: Repository, commit: str) -> str:
    with laid_out(repository, commit, prompts=SHIPPED_PROMPTS) as context:
        return settings_text(context, alone=True)
