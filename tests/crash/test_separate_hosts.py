"""M3 on hosts with networks, processes and disks of their own: lost, cut off, stopped, replaced.

No time is shortened. So that it takes one minute and not five, all hosts are in trouble at once, and are
cut off for CUT_OFF_SECONDS. What is counted: answers that were lost or delivered twice, tasks that were lost,
how often somebody went on, and how soon, by the times in the database's rows.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db.migrations.loader import MigrationLoader

from tasks_app.management.commands.up import server_options
from tasks_app.rehearsal.server import RehearsalServer
from tests.databases import empty_postgres
from tests.forkserver import REPOSITORY
from tests.hosts import Host, Network
from tests.installation import PLAIN_CONFIG, answering
from tests.integration.collectors import Received, collecting
from tests.integration.redis_server import redis_server
from tests.portal import WebServer
from tests.waiting import wait_until as wait_for_seconds

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.bubblewrap,
    pytest.mark.postgres,
    pytest.mark.redis,
    pytest.mark.once(on="sqlite"),
]

BEGIN = """
from pathlib import Path
from tasks_app.models import User
from tasks_app.services.projects.projects import add_project
from tests.integration.git_repository import GitRepository
ann = User.objects.create(username="ann", is_superuser=True, password="!")
GitRepository.make_large(Path(SOURCE), **{"cat-herder.yaml": CONFIG})
add_project("travels", SOURCE, by=ann)
"""
NEW_TASKS = """
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, start_task
ann = Principal.unrestricted(User.objects.get(username="ann"))
text = "# It NUMBER\\n\\nrehearsal: SCENARIO\\n"
result = []
for number in range(MANY):
    text_of_it = text.replace("NUMBER", str(number))
    task = create_task(Project.objects.get(), text_of_it, by=ann, where="test", threshold=3)
    start_task(task, by=ann)
    result.append(task.pk)
"""
COUNT = """
from tasks_app.git import committed_text
from tasks_app.models import paths
task = Task.objects.select_related("project").get(pk=TASK)
runs = list(Run.objects.filter(step__task=task).order_by("number"))
questions = Question.objects.filter(step__task=task)
results = Event.objects.filter(run__step__task=task, kind="tool_result").values_list("payload", flat=True)
result = {
    "phase": task.phase,
    "failure": task.failure,
    "runs": [run.outcome for run in runs],
    "epochs": [run.lease_epoch for run in runs],
    "sessions": len({run.session_id for run in runs}),
    "disks": len({run.data_dir for run in runs}),
    "overlaps": sum(
        late.started_at < early.ended_at for early, late in zip(runs, runs[1:]) if early.ended_at
    ),
    "answers": questions.filter(state="answered").count(),
    "open questions": questions.filter(state="open").count(),
    "answers that arrived": sum("Blue ☃" in json.dumps(one, ensure_ascii=False) for one in results),
    "start of the first run": runs[0].started_at.isoformat(),
    "start of the last run": runs[-1].started_at.isoformat(),
    "files": {
        name: committed_text(paths.repository(task.project), commit=task.head_commit, path=name)
        for name in FILES
    },
}
"""
ROUTES = [
    ("GET", ""),
    ("POST", "/refs"),
    ("GET", "/repository.git/info/refs?service=git-upload-pack"),
    ("POST", "/repository.git/git-receive-pack"),
]
ASK_PORTAL = """
import requests
for method, path in {routes!r}:
    headers = {{"Authorization": "Bearer {token}"}}
    print(requests.request(method, "{url}" + path, headers=headers, data=b"0000", timeout=60).status_code)
"""
#: A host that is lost while it sends loses these spans; here they are sent all the same.
SEND_SPANS = """
from tasks_app.engine.traces.otlp import SpanSender
from tasks_app.engine.traces.span_exporter import send_ended
from tasks_app.models import SentSpan
SentSpan.objects.all().delete()
sys.stdout.write(repr(send_ended(SpanSender())))
"""
#: By host: from what it is cut off.
SERVICES = {"no-database": "DATABASE_URL", "no-redis": "REDIS_URL", "no-portal": "CATHERDER_URL"}
#: The hosts whose tasks others go on with.
TAKEN_OVER = ("lost", "no-database", "stopped")
ANSWER = 'Blue ☃ "; rm -rf /'
HOUR = 3600
CUT_OFF_SECONDS = 60.0
#: The most until somebody goes on with a task of a host that is in trouble (M3).
PROMISED_SECONDS = 60.0
NEXT_MIGRATION = "9999_next_version"
MIGRATION = """\
from django.db import migrations, models
class Migration(migrations.Migration):
    dependencies = [("tasks_app", "{newest}")]
    operations = [migrations.AddField("task", "colour", models.TextField(db_default=""))]
"""


def wait_until(true: Callable[[], object], *, log: Path) -> None:
    """Several hosts begin and agents work at the same time, which takes long on a busy machine."""
    wait_for_seconds(true, seconds=300.0, log=log)


@dataclass
class Installation:
    """A portal with PostgreSQL and Redis, and its worker hosts."""

    portal: WebServer
    network: Network
    folder: Path
    variables: dict[str, str]
    tokens: dict[str, str] = field(default_factory=dict)

    def worker(self, name: str, *, slots: int = 1, version: Path = REPOSITORY, **variables: str) -> Host:
        """Start a new host, and a worker of the version on it."""
        host = self.network.host(name, self.folder / name, self.portal.data_dir)
        token = self.tokens[name] = self.portal.manage("worker_token", name).stdout.strip()
        env = self.portal.env(
            **self.variables, CATHERDER_WORKER_TOKEN=token, CATHERDER_WORKERS=str(slots), **variables
        )
        program = ["-m", "tests.manage_on_a_host"] if variables else ["manage.py"]
        host.start(*program, "worker", env=env, version=version)
        return host

    def new_tasks(self, scenario: str, many: int = 1) -> list[int]:
        tasks: list[int] = self.portal.rows(
            NEW_TASKS.replace("SCENARIO", scenario).replace("MANY", str(many))
        )
        return tasks

    def count(self, task: int, *files: str) -> dict[str, Any]:
        code = COUNT.replace("TASK", str(task)).replace("FILES", repr(files))
        found: dict[str, Any] = self.portal.rows(code)
        return found

    def holder(self, task: int) -> str:
        """Return the name of the host that holds the task, or ""."""
        owner: str
        (owner,) = self.portal.row("SELECT lease_owner FROM tasks_app_task WHERE id = ?", task)
        return owner.partition("@")[0]

    def now(self) -> datetime:
        """Return the database's time."""
        moment: datetime
        (moment,) = self.portal.row("SELECT clock_timestamp()")
        return moment

    def workers_taking_tasks(self) -> set[str]:
        """Return the names of the hosts of workers that take tasks, by their heartbeats."""
        hosts: list[str] = self.portal.rows(
            "result = list(WorkerBeat.objects.alive().filter(problem='').values_list('host', flat=True))"
        )
        return {host.partition("@")[0] for host in hosts}

    def answer_newest_question(self) -> None:
        (question,) = self.portal.row("SELECT id FROM tasks_app_question ORDER BY id DESC LIMIT 1")
        assert self.portal.python(answering(question, ANSWER, by="ann")) == ""

    def answer_question_of(self, task: int) -> None:
        query = "SELECT q.id FROM tasks_app_question q JOIN tasks_app_step s ON s.id = q.step_id"
        (question,) = self.portal.row(f"{query} WHERE s.task_id = ? AND q.state = 'open'", task)
        assert self.portal.python(answering(question, ANSWER, by="ann")) == ""

    def epoch(self, task: int) -> int:
        return int(self.portal.row("SELECT lease_epoch FROM tasks_app_task WHERE id = ?", task)[0])

    def works_on(self, host: Host, task: int) -> bool:
        """Whether an agent works on the task there."""
        return any(self.workspace(host, task).glob("at-work.*")) and self.holder(task) == host.name

    def workspace(self, host: Host, task: int) -> Path:
        (key,) = self.portal.row("SELECT folder_key FROM tasks_app_task WHERE id = ?", task)
        return host.disk / "tasks" / f"{task}-{key}" / "workspace"

    def tell(self, host: Host, task: int) -> None:
        """Let the agent of the task end its work."""
        (self.workspace(host, task) / "go").touch()

    def refs(self, *tasks: int) -> list[str]:
        """Return the references of these tasks in the portal's repository, with what they name."""
        code = (
            "from tasks_app.models import paths\n"
            "git = paths.repository(Project.objects.get()).git\n"
            f"mine = [*Task.objects.filter(pk__in={tasks}).values_list('branch', flat=True)]\n"
            f"mine = [*(f'/{{one}}' for one in mine), *(f'incoming/{{one}}/' for one in {tasks})]\n"
            "refs = git.line('for-each-ref', '--format=%(refname)/ %(objectname)').splitlines()\n"
            "result = [ref for ref in refs if any(f'{one}/'.replace('//', '/') in ref for one in mine)]"
        )
        found: list[str] = self.portal.rows(code)
        return found

    def statuses(self, host: Host, task: int, epoch: int) -> set[int]:
        """Return what the portal answers this host if it asks, fetches or pushes by a lease."""
        url, token = self.variables["CATHERDER_URL"], self.tokens[host.name]
        code = ASK_PORTAL.format(url=f"{url}/worker/tasks/{task}/{epoch}", token=token, routes=ROUTES)
        return {int(line) for line in host.python(code).split()}

    def wait_for_agent(self, task: int, *hosts: Host) -> None:
        """Wait until an agent works on the task on one of these hosts."""
        wait_until(lambda: any(self.works_on(host, task) for host in hosts), log=hosts[0].log)

    def wait_for_ends(self, tasks: list[int], host: Host) -> None:
        """Wait until no worker has to do anything more for these tasks."""
        going = ("pending", "running")
        wait_until(lambda: not any(self.portal.phase(task) in going for task in tasks), log=host.log)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with empty_postgres() as url:
        yield url


@pytest.fixture(scope="module")
def installation(
    database: str, server: RehearsalServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("hosts")
    model = {"ANTHROPIC_API_KEY": "a-key"}
    with redis_server() as redis:
        portal = WebServer(
            folder / "data",
            DATABASE_URL=database,
            REDIS_URL=redis.url,
            ANTHROPIC_BASE_URL=server.url,
            **model,
        ).start(*server_options())
        try:
            urls = {
                "DATABASE_URL": database, "REDIS_URL": redis.url,
                "CATHERDER_URL": f"http://{portal.address}", "ANTHROPIC_BASE_URL": server.url,
            }  # fmt: skip
            code = BEGIN.replace("SOURCE", repr(str(folder / "source"))).replace("CONFIG", repr(PLAIN_CONFIG))
            portal.python(code)
            with Network() as network:
                variables = {name: network.offer_url(name, url) for name, url in urls.items()}
                yield Installation(portal, network, folder, {**variables, **model})
        finally:
            portal.stop()


@pytest.fixture(autouse=True)
def no_hosts_left(installation: Installation) -> Iterator[None]:
    """Each test has hosts of its own, and no task of another."""
    yield
    installation.network.destroy_hosts()


def test_m3_hosts_that_are_lost_cut_off_or_stopped_hand_over_once(
    installation: Installation, record_property: Callable[[str, object], None]
) -> None:
    """One of them has asked something before, and the answer comes while it is in trouble."""
    names = ("lost", "no-database", "stopped", "no-redis", "no-portal")
    hosts = {name: installation.worker(name) for name in names}
    (asking,) = installation.new_tasks("crash-story")
    wait_until(lambda: waits_without_a_lease(installation, asking), log=hosts["lost"].log)
    new = installation.new_tasks("work-until-told", many=len(hosts))
    for task in new:
        installation.wait_for_agent(task, *hosts.values())
    tasks = {installation.holder(task): task for task in new}
    assert tasks.keys() == hosts.keys(), "one each"
    epochs = {name: installation.epoch(task) for name, task in tasks.items()}
    rescuer = installation.worker("rescuer", slots=4)
    wait_until(lambda: "rescuer" in installation.workers_taking_tasks(), log=rescuer.log)
    trouble_began = installation.now()
    began = time.monotonic()
    begin_trouble(hosts)
    installation.answer_newest_question()
    for name in TAKEN_OVER:
        installation.wait_for_agent(tasks[name], rescuer)
    # Redis only notifies; what the portal cannot take yet is kept: both hosts hold their tasks to the end.
    for name in ("no-redis", "no-portal"):
        installation.tell(hosts[name], tasks[name])
    wait_until(lambda: installation.portal.phase(tasks["no-redis"]) == "done", log=hosts["no-redis"].log)
    wait_until(lambda: hosts["no-portal"].agents() == [], log=hosts["no-portal"].log)
    installation.wait_for_ends([asking], rescuer)
    time.sleep(max(0.0, began + CUT_OFF_SECONDS - time.monotonic()))
    taken_over = tasks["no-database"], tasks["stopped"]
    before = installation.refs(*taken_over)
    end_trouble(hosts)
    for name in ("no-database", "stopped"):
        wait_until_given_up(hosts[name])
        assert installation.statuses(hosts[name], tasks[name], epochs[name]) == {403}, "its lease is over"
    assert installation.refs(*taken_over) == before, "who came back has recorded nothing"
    installation.wait_for_ends([tasks["no-portal"]], hosts["no-portal"])
    for name in TAKEN_OVER:
        assert installation.works_on(rescuer, tasks[name])
        installation.tell(rescuer, tasks[name])
    installation.wait_for_ends(new, rescuer)
    counted = {name: installation.count(task, "went") for name, task in tasks.items()}
    for name, one in counted.items():
        assert one["runs"] == (["crashed", "finished"] if name in TAKEN_OVER else ["finished"]), (name, one)
        assert one["phase"] == "done" and one["files"]["went"] is not None, (name, one)
        assert (one["sessions"], one["overlaps"]) == (1, 0), (name, one)
        assert one["disks"] == len(one["runs"]), (name, one)
    for name in TAKEN_OVER:
        went_on = datetime.fromisoformat(counted[name]["start of the last run"])
        seconds = (went_on - trouble_began).total_seconds()
        record_property("measured", f"{seconds:.0f} s until somebody went on: {name}")
        assert 0 < seconds <= PROMISED_SECONDS, name
    told = installation.count(asking, "after.txt")
    answers = told["answers"], told["open questions"], told["answers that arrived"]
    assert (told["phase"], told["runs"], answers) == ("done", ["asked", "finished"], (1, 0, 1)), told
    assert told["files"]["after.txt"].count(ANSWER) == 1
    lost = sum(one["phase"] != "done" for one in [*counted.values(), told])
    record_property(
        "measured", f"lost tasks: {lost} of {len(counted) + 1}; answers that arrived: {answers[2]} of 1"
    )


def test_m1_two_hosts_record_halt_and_go_on_in_a_repository_of_real_size(
    installation: Installation, record_property: Callable[[str, object], None]
) -> None:
    """500 files and a history that git keeps as deltas. No agent is paid twice."""
    hosts = [installation.worker(name, slots=2) for name in ("build-1", "build-2")]
    tasks = installation.new_tasks("change-of-real-size", many=8)
    for task in tasks:
        wait_until(partial(waits_without_a_lease, installation, task), log=hosts[0].log)
    for task in tasks:
        installation.answer_question_of(task)
    installation.wait_for_ends(tasks, hosts[0])
    first, second, removed = "src/part0/module0.py", "src/part3/module3.py", "src/part7/module7.py"
    done = 0
    for task in tasks:
        counted = installation.count(task, first, second, removed, "after.txt")
        assert counted["phase"] == "done" and counted["runs"] == ["asked", "finished"], counted
        assert counted["files"][first].endswith("added = 1\n")
        assert counted["files"][second].endswith("added = 2\n")
        assert counted["files"][removed] is None and ANSWER in counted["files"]["after.txt"]
        done += 1
    worked = {host.name for host in hosts if any((host.disk / "tasks").glob("*"))}
    assert worked == {"build-1", "build-2"}
    assert not any("tried again in" in host.log.read_text() for host in hosts)
    record_property("measured", f"tasks of two hosts that recorded, halted and went on: {done} of 8")


def test_m2_an_answer_reaches_the_same_session_on_a_host_with_another_clock(
    installation: Installation,
) -> None:
    """The host that asked was an hour ahead, and is destroyed; the one that goes on is an hour behind.

    The first one has an endpoint for traces, which it does not reach, the second one has none.
    """
    endpoint = "http://127.0.0.1:9"
    first = installation.worker("ahead", HOST_CLOCK_AHEAD=f"{HOUR}", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    (task,) = installation.new_tasks("crash-story")
    wait_until(lambda: waits_without_a_lease(installation, task), log=first.log)
    first.destroy()
    installation.answer_newest_question()
    second = installation.worker("behind", HOST_CLOCK_AHEAD=f"{-HOUR}")
    installation.wait_for_ends([task], second)
    counted = installation.count(task, "before.txt", "after.txt")
    assert counted["phase"] == "done" and counted["runs"] == ["asked", "finished"], counted
    assert counted["start of the last run"] < counted["start of the first run"], "the clocks were wrong"
    assert (counted["sessions"], counted["disks"], counted["epochs"]) == (1, 2, [1, 2])
    assert (counted["answers"], counted["open questions"], counted["answers that arrived"]) == (1, 0, 1)
    assert counted["files"]["before.txt"] == "before\n"
    assert counted["files"]["after.txt"].count(ANSWER) == 1
    spans = spans_of(installation, task)
    (trace_id,) = {span.trace_id for span in spans}
    (whole,) = (span for span in spans if span.name == "task")
    (step,) = (span for span in spans if span.name.startswith("step"))
    others = [(span.name, span.parent_id) for span in spans if span not in (whole, step)]
    assert trace_id and (whole.parent_id, step.parent_id) == ("", whole.span_id)
    runs = [("invoke_agent claude-code", step.span_id)] * 2
    assert sorted(others) == [("checks", step.span_id), *runs, ("wait for answer", step.span_id)]
    assert all(span.start <= span.end for span in spans)


def spans_of(installation: Installation, task: int) -> list[Received]:
    """Return the spans of a task that a process on the portal's host sends."""
    with collecting() as collector:
        sent = installation.portal.python(SEND_SPANS, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        assert sent == "''", sent
        return [span for span in collector.spans() if span.attributes["cat_herder.task.id"] == task]


def waits_without_a_lease(installation: Installation, task: int) -> bool:
    """The question is open, and the work is recorded."""
    row = installation.portal.row("SELECT phase, lease_owner FROM tasks_app_task WHERE id = ?", task)
    return row == ("waiting_for_input", "")


def test_m3_two_versions_run_side_by_side_until_the_older_one_is_drained(
    installation: Installation, next_version: Path
) -> None:
    """The portal's process and the hosts `old` and `restarted` are of the version before the database's."""
    portal = installation.portal
    old = installation.worker("old")
    (held,) = installation.new_tasks("work-until-told")
    installation.wait_for_agent(held, old)
    manage(next_version, portal, "migrate")
    assert portal.manage("worker", "--drain", "old@old", "--no-wait").returncode == 0
    restarted = installation.worker("restarted")
    problem = "SELECT max(problem) FROM tasks_app_workerbeat WHERE host = 'restarted@restarted'"
    wait_until(lambda: "newer version" in (portal.row(problem)[0] or ""), log=restarted.log)
    (waiting,) = installation.new_tasks("no-questions")
    new = installation.worker("new", version=next_version)
    installation.wait_for_ends([waiting], new)
    assert "newer version" in portal.row(problem)[0]
    where = [host.name for host in (old, restarted, new) if installation.workspace(host, waiting).exists()]
    assert where == ["new"]
    assert installation.works_on(old, held), "what it holds is not touched"
    installation.tell(old, held)
    drained = portal.manage("worker", "--drain", "old@old")
    assert drained.returncode == 0 and drained.stdout.endswith("is empty.\n"), drained.stderr
    assert old.end() == 0
    for task in (held, waiting):
        counted = installation.count(task)
        assert counted["phase"] == "done" and counted["runs"] == ["finished"], counted
        assert counted["epochs"] == [1], "nobody else went on"


def manage(version: Path, portal: WebServer, *words: str) -> None:
    """Run a command of the version on the portal's host."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=version, env=portal.env(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def next_version(installation: Installation, tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a later version, whose tasks have a colour. Go back to this one after the test."""
    shutil.copy(REPOSITORY / "manage.py", tmp_path)
    for package in ("tasks_app", "catherder_site", "templates", "prompts"):
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pyc"))
    with (tmp_path / "tasks_app" / "models" / "task.py").open("a") as models:
        models.write('Task.add_to_class("colour", models.TextField(db_default=""))\n')
    ((_, newest),) = MigrationLoader(None).graph.leaf_nodes("tasks_app")
    migrations = tmp_path / "tasks_app" / "migrations"
    (migrations / f"{NEXT_MIGRATION}.py").write_text(MIGRATION.format(newest=newest))
    yield tmp_path
    manage(tmp_path, installation.portal, "migrate", "tasks_app", newest)


def begin_trouble(hosts: dict[str, Host]) -> None:
    hosts["lost"].kill()
    for name, service in SERVICES.items():
        hosts[name].cut_off(service)
    hosts["stopped"].send_signal(signal.SIGSTOP)


def end_trouble(hosts: dict[str, Host]) -> None:
    for name, service in SERVICES.items():
        hosts[name].reconnect(service)
    hosts["stopped"].send_signal(signal.SIGCONT)


def wait_until_given_up(host: Host) -> None:
    """Wait until the host knows that another one went on, and has ended its agent."""
    wait_until(lambda: "was taken over" in host.log.read_text(), log=host.log)
    wait_until(lambda: host.agents() == [], log=host.log)
