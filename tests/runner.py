"""A project with users and tasks, which any agent behind the port runs in this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks_app.agent.port import Agent
from tasks_app.engine.advance import advance
from tasks_app.engine.prompts.values import step_prompt
from tasks_app.engine.runs.next_run import NextRun, next_run
from tasks_app.engine.stopping import StopSignal, never
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import diff
from tasks_app.models import Channel, Event, Project, Question, Run, SessionEntry, Step, Task, User, paths
from tasks_app.sandbox import Sandbox
from tasks_app.services.decisions.content import decisions_for
from tasks_app.services.projects.projects import add_project
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.questions.question_outcomes import Answered
from tasks_app.services.tasks import create_task, start_task
from tests.fake_agent import FakeAgent
from tests.fake_script import Act
from tests.integration.git_repository import GitRepository
from tests.people import acting

ONE_STEP = """\
pipelines:
  default:
    - name: do
      command: self
"""
TWO_STEPS = """\
pipelines:
  default:
    clarify: false
    steps:
    - name: plan
      command: plan-task
    - name: implement
      command: implement
"""
#: What a script is given as: the acts of every session, of each step by name, or a function of the prompt.
Play = Sequence[Act] | Mapping[str, Sequence[Act]] | Callable[[str], Sequence[Act]]


@dataclass
class Runner:
    """One task at a time; `agent` does its runs."""

    folder: Path
    user: User
    agent: Agent = field(default_factory=lambda: FakeAgent(lambda prompt: []))
    sandbox: Sandbox = field(default_factory=lambda: Sandbox(None))
    stop_signal: StopSignal = never

    def project(self, config: str = ONE_STEP, **files: str) -> Project:
        source = self.folder / f"source-{Project.objects.count()}"
        GitRepository.make(source, **{"cat-herder.yaml": config, **files})
        return add_project(f"repository-{Project.objects.count()}", str(source), by=self.user)

    def task(
        self,
        play: Play | None = None,
        *,
        config: str = ONE_STEP,
        text: str = "# Paint it\n\nIn some colour.\n",
        threshold: int = 3,
        project: Project | None = None,
    ) -> Task:
        """A started task; `play` is what the fake plays for it."""
        if play is not None:
            self.agent = FakeAgent(script(play))
        project = project or self.project(config)
        task = create_task(project, text, by=acting(self.user), where="test", threshold=threshold)
        start_task(task, by=acting(self.user))
        return task

    @property
    def fake(self) -> FakeAgent:
        assert isinstance(self.agent, FakeAgent)
        return self.agent

    @property
    def context(self) -> WorkerContext:
        return WorkerContext(self.agent, self.sandbox, lambda: self.stop_signal())

    def advance(self, task: Task, *, owner: str = "tester") -> Task:
        advance(task.pk, owner=owner, context=self.context)
        task.refresh_from_db()
        return task

    def answer(self, question: Question, text: str, *, notes: str = "") -> Answered:
        answers = {item["question"]: text for item in question.items}
        return answer_question(question, Reply(answers, notes), by=acting(self.user), via=Channel.WEB)

    def answer_all(self, task: Task, text: str = "Yes") -> None:
        for question in task.questions.open():
            self.answer(question, text)


def script(play: Play) -> Callable[[str], Sequence[Act]]:
    if callable(play):
        return play
    if isinstance(play, Mapping):
        return lambda prompt: play[step_in(prompt)]
    return lambda prompt: play


def step_in(prompt: str) -> str:
    found = re.search(r'You are responsible for the step "([^"]+)"', prompt)
    assert found, prompt
    return found[1]


def runs(task: Task) -> list[Run]:
    return list(Run.objects.filter(step__task=task).order_by("step__position", "number"))


def step(task: Task, name: str = "do") -> Step:
    return task.steps.get(name=name)


def prompt_of(step: Step) -> str:
    return step_prompt(step, decisions_for(step))


def run_after(step: Step) -> NextRun:
    """The run that follows from the end of the last one."""
    return next_run(step, list(step.current_runs))


def results(task: Task) -> list[str]:
    """The texts of all tool results that the agents were given, with what stood beside them for a fake."""
    events = Event.objects.filter(run__step__task=task, kind="tool_result")
    found = list(events.order_by("run__number", "seq"))
    sessions = {str(run.session_id) for run in runs(task)}
    beside = SessionEntry.objects.filter(session_id__in=sessions, entry__has_key="beside")
    said = {entry["beside"]: entry["message"]["content"] for entry in beside.values_list("entry", flat=True)}
    texts = [[one.payload["text"], said.get(one.payload["tool_use_id"])] for one in found]
    return ["\n\n".join(filter(None, parts)) for parts in texts]


def file_in(task: Task, name: str) -> Path:
    return paths.workspace(task).path / name


def diff_of(task: Task) -> str:
    return diff(paths.repository(task.project), base=task.base_commit, head=task.head_commit)
