"""What tests of commands and of whole processes share."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command

from tasks_app import composition
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.engine.publishing import pull_requests
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import Repository
from tasks_app.models import Project, Question, User
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import SandboxMode, detect
from tests import fake_agent, fake_script, machine, shared
from tests.agents import connection_to, rehearsal
from tests.factories import ProjectFactory, QuestionFactory
from tests.forges.fake import FakeForge
from tests.installation import Installation
from tests.integration.git_repository import GitRepository
from tests.results import Result, make_result
from tests.runner import Runner

if TYPE_CHECKING:
    from tests.integration.collectors import Collector

Manage = Callable[..., tuple[int, str, str]]


@pytest.fixture
def manage(
    capsys: pytest.CaptureFixture[str],
    settings: Any,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Manage:
    """Runs a command in this process: exit code, stdout and stderr. The data directory is the test's own:
    commands refuse one in which other tests, with other rows, have left their work."""
    if tmp_path / "data" != settings.DATA_DIR:  # that of the fixture `runner`
        settings.DATA_DIR = tmp_path_factory.mktemp("data")

    def run(*words: object) -> tuple[int, str, str]:
        code: Any = 0
        try:
            call_command(*map(str, words))
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def project() -> Project:
    return ProjectFactory.create(name="shop")


@pytest.fixture
def question() -> Question:
    """An open one, of a task in a project of its own."""
    return QuestionFactory.create()


@dataclass
class FakeAgents:
    """A fake agent that plays `acts` by the word in a task's body: `word: first`."""

    acts: dict[str, Sequence[fake_script.Act]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agent = fake_agent.FakeAgent(self._script)

    def _script(self, prompt: str) -> Sequence[fake_script.Act]:
        word = re.findall(r"^word: (\w+)$", prompt, re.MULTILINE)[-1]
        done = [
            fake_script.Turn(calls=(fake_script.write(f"{word}.txt", word),)),
            fake_script.say(f"The {word} is done."),
        ]
        return self.acts.get(word, done)


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> FakeAgents:
    """Commands that work on tasks in this process do it with this agent."""
    agents = FakeAgents()
    sandbox = detect(SandboxMode.OFF)
    monkeypatch.setattr(
        composition, "worker_context", lambda stop_signal: WorkerContext(agents.agent, sandbox, stop_signal)
    )
    return agents


@pytest.fixture(scope="session")
def installation_template() -> Installation:
    """Made once for all workers and copied: to make users and repositories takes seconds."""
    data_dir, made = shared.FOLDER / "installation", shared.FOLDER / "installation-made"
    with shared.alone("installation-lock"):
        if made.exists():
            return Installation(data_dir)
        shutil.rmtree(data_dir, ignore_errors=True)  # of a worker that failed half-way
        data_dir.mkdir()
        template = Installation.make(data_dir)
        made.touch()
        return template


@pytest.fixture
def installation(installation_template: Installation, tmp_path: Path) -> Installation:
    return installation_template.copy(tmp_path / "data")


@pytest.fixture
def runner(transactional_db: None, settings: Any, tmp_path: Path) -> Runner:
    """A portal in this process, with folders of its own: row numbers come again from test to test."""
    settings.DATA_DIR = tmp_path / "data"
    user = User.objects.create_user("ann", is_superuser=True)
    return Runner(tmp_path, user)


@pytest.fixture
def done(runner: Runner) -> Result:
    """A task that is done, with its result and a repository to publish it to."""
    return make_result(runner)


@pytest.fixture
def own(work: GitRepository, tmp_path: Path) -> Repository:
    """The portal's repository, with the work in it; a test says what `work` is."""
    repository = Repository(tmp_path / "own.git", str(work.path), name="shop")
    repository.fetch()
    return repository


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RehearsalServer]:
    """A rehearsal with the scenarios of these tests as well."""
    (tmp_path / "server").mkdir()
    with rehearsal(tmp_path / "server") as server:
        yield server


@pytest.fixture
def real(runner: Runner, server: RehearsalServer) -> Runner:
    """Return a task runner with the real agent program, sandboxed."""
    sandbox = machine.sandbox(runner.folder / "data")
    runner.agent = ClaudeAgent(sandbox, connection_to(server))
    runner.sandbox = sandbox
    return runner


@pytest.fixture
def behind_the_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes `composition.connect` lead to a server, with an API key or with the token of a login."""

    def lead(server: RehearsalServer, **credentials: str) -> None:
        given = {"anthropic_base_url": server.url, **(credentials or {"anthropic_api_key": "sk-real"})}
        environment = django_settings.ENVIRONMENT.model_copy(update=given)
        monkeypatch.setattr(django_settings, "ENVIRONMENT", environment)
        composition._proxy.cache_clear()

    yield lead
    composition._proxy().stop()
    composition._proxy.cache_clear()


@pytest.fixture
def metered(runner: Runner, server: RehearsalServer, behind_the_proxy: Any) -> Runner:
    """Return a task runner with the real agent program behind the proxy, sandboxed."""
    behind_the_proxy(server)
    runner.sandbox = machine.sandbox(runner.folder / "data")
    runner.agent = ClaudeAgent(runner.sandbox, composition.connect)
    return runner


@pytest.fixture
def collector() -> Iterator[Collector]:
    """An endpoint for traces that keeps what it gets."""
    from tests.integration.collectors import collecting  # OpenTelemetry, which few tests need

    with collecting() as collector:
        yield collector


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> FakeForge:
    """What every project publishes to; it opens pull requests in memory."""
    fake = FakeForge()
    monkeypatch.setattr(pull_requests, "forge_of", lambda project: fake)
    monkeypatch.setattr("tasks_app.services.publishing.publications.pull_request_hindrance", lambda _: "")
    return fake
