"""The soak itself: a portal, its clients, and what kills it."""

from __future__ import annotations

import json
import os
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import close_old_connections

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.core.phases import ENDED, Phase
from tasks_app.engine.runs.recovery import DEATHS
from tasks_app.git import committed_text
from tasks_app.management.commands.up import children
from tasks_app.management.supervisor import Child, listen
from tasks_app.models import Question, QuestionState, Run, Scope, SessionEntry, Task, User, paths
from tasks_app.models.task import LEASE_SECONDS
from tasks_app.services.accounts import make_token
from tasks_app.services.projects.projects import add_project
from tests.agents import rehearsal
from tests.databases import copy_migrated
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.soak.story import story

TEXT = "# Paint it\n\nrehearsal: crash-story\n"
CONFIG = """\
interactionThreshold: 3
pipelines:
  default:
    - {name: do, command: self, retry: 0, check: {type: shell, command: test -e after.txt}}
"""
#: Seconds in which the last tasks must end once nothing is killed any more.
PATIENCE = 300.0
LOOK_SECONDS = 0.2
#: Seconds for which a task may be shown as running although its worker has died (R3).
LONGEST_UNTRUE = 60.0
#: In the failure of a task that the portal stopped because its processes were killed again and again.
GIVEN_UP = "times in a row"


@dataclass
class Client:
    """A script that asks again until it is told that it was done."""

    url: str
    secret: str
    acknowledged: dict[int, str] = field(default_factory=dict)
    sent: dict[int, str] = field(default_factory=dict)
    created: int = 0
    resumed: int = 0

    def create(self, project: str) -> bool:
        """Ask for one more task; the same key again until it is acknowledged, so that none is made twice."""
        body = {"project": project, "text": TEXT, "start": True}
        if self._post("/tasks", body, key=f"soak-{self.created}") != 201:
            return False
        self.created += 1
        return True

    def answer(self, question: Question) -> None:
        text = f"answer to {question.pk}: ☃ {question.pk * 7919 % 10007}"
        self.sent[question.pk] = text  # a server that dies may have stored it, and told nobody
        if self._post(f"/questions/{question.pk}/answer", {"answer": text}) in {200, 201}:
            self.acknowledged[question.pk] = text

    def resume(self, task: Task) -> None:
        """What the portal tells a person to do whose task was killed too often."""
        if self._post(f"/tasks/{task.pk}/resume", {}) in {200, 201}:
            self.resumed += 1

    def answers(self) -> bool:
        """Whether the web server is up."""
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def _post(self, path: str, body: Any, *, key: str = "") -> int:
        """The status of the response; 0 if none came."""
        headers = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        request = urllib.request.Request(f"{self.url}/api/v1{path}", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


@dataclass
class LostWorkers:
    """The longest time in seconds that a task was `running` without a living worker, and said so.

    A page says that the task waits for a worker as soon as the lease of the dead one has lapsed.
    """

    longest: float = 0.0
    longest_shown: float = 0.0
    _since: dict[int, float] = field(default_factory=dict)
    _shown_since: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        rows = Task.objects.filter(phase=Phase.RUNNING).values_list("pk", "lease_owner")
        lost = {pk for pk, owner in rows if not _holder_lives(owner)}
        shown = lost - set(Task.objects.without_worker().values_list("pk", flat=True))
        self.longest = max(self.longest, _longest(self._since, lost))
        self.longest_shown = max(self.longest_shown, _longest(self._shown_since, shown))


def _holder_lives(owner: str) -> bool:
    """Return whether the process in the name `host:pid:thread` lives. All are on this machine."""
    pid = owner.split(":")[1] if ":" in owner else "0"
    return Path(f"/proc/{pid}").exists()


def _longest(since: dict[int, float], present: set[int]) -> float:
    """Keep since when each of these is seen, and return the longest time; others begin anew."""
    now = time.monotonic()
    for gone in since.keys() - present:
        del since[gone]
    for one in present:
        since.setdefault(one, now)
    return max((now - begun for begun in since.values()), default=0.0)


def _is_past(moment: float) -> bool:
    return time.monotonic() > moment


class Soak:
    """One portal, in a folder of its own. `run` gives an exit code: 0 if nothing was lost."""

    def __init__(self, folder: Path, *, seed: int, tasks: int, longest_pause: float) -> None:
        """`longest_pause` is in seconds, between two kills."""
        self._folder = folder
        self._longest_pause = longest_pause
        self._chance = random.Random(seed)
        self._at_once = tasks
        self._killed: Counter[str] = Counter()
        self._lost_workers = LostWorkers()

    def run(self, cycles: int) -> int:
        with rehearsal(self._folder) as model:
            os.environ["ANTHROPIC_BASE_URL"] = model.url
            listener = listen("127.0.0.1", 0)
            processes = children(listener)
            client = self._prepare(f"http://127.0.0.1:{listener.getsockname()[1]}")
            try:
                self._fire(cycles, processes, client)
                self._until(lambda: not self._unfinished(), processes, client)
            finally:
                _end(processes)
                listener.close()
        return self._judge(client)

    def _prepare(self, url: str) -> Client:
        if not os.environ.get("DATABASE_URL"):
            copy_migrated(settings.DATA_DIR)
        call_command("migrate", verbosity=0)
        source = self._folder / "source"
        GitRepository.make(source, **{"cat-herder.yaml": CONFIG})
        user = User.objects.create_user("soak", is_superuser=True)
        add_project("soak", str(source), by=user)
        return Client(url, make_token("soak", tuple(Scope), by=acting(user)).secret)

    def _fire(self, cycles: int, processes: list[Child], client: Client) -> None:
        """Each cycle kills one process. A web server that has just begun is left alone until it answers."""
        for cycle in range(1, cycles + 1):
            pause = time.monotonic() + self._chance.uniform(0.2, self._longest_pause)
            self._until(partial(_is_past, pause), processes, client, supply=True)
            wanted = self._chance.choice(["web server", "worker", "agent", "agent"])
            kill = partial(self._kill, wanted, processes, client)
            self._until(kill, processes, client, supply=True)
            self._killed[wanted] += 1
            if cycle % 10 == 0:
                done = Task.objects.filter(phase=Phase.DONE).count()
                print(f"cycle {cycle}: {done} of {Task.objects.count()} tasks done", flush=True)

    def _kill(self, what: str, processes: list[Child], client: Client) -> bool:
        if what == "web server" and not client.answers():
            return False
        if what == "agent":
            found = [pid for task in _open_tasks() for pid in marked_processes(paths.workspace(task).path)]
            pids = [pid for pid in found if not _is_gate(pid)]
        else:
            pids = [c.process.pid for c in processes if c.name == what and c.process]
        if not pids:
            return False
        try:
            os.kill(self._chance.choice(pids), 9)
        except ProcessLookupError:
            return False
        return True

    def _until(
        self, true: Callable[[], bool], processes: list[Child], client: Client, *, supply: bool = False
    ) -> None:
        """What goes on all the time: processes are started again, people create tasks and answer."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, (
                f"{true!r:.200} was not true after {PATIENCE:g} s: {self._unfinished()}"
            )
            for child in processes:
                child.not_before = child.failures = 0  # the portal's pauses are not what is tried
                child.restart_if_ended(lambda text: None)
            close_old_connections()
            self._lost_workers.look()
            if supply and len(self._unfinished()) < self._at_once:
                client.create("soak")
            for question in Question.objects.filter(state=QuestionState.OPEN):
                client.answer(question)
            for task in Task.objects.filter(phase=Phase.FAILED, failure__contains=GIVEN_UP):
                client.resume(task)
            time.sleep(LOOK_SECONDS)

    def _unfinished(self) -> list[str]:
        return [f"{task.pk} {task.phase} {task.failure}" for task in Task.objects.exclude(phase__in=ENDED)]

    def _judge(self, client: Client) -> int:
        faults = _faults(client)
        lost = self._lost_workers
        if lost.longest_shown > LONGEST_UNTRUE:
            faults.append(f"a task was shown as running for {lost.longest_shown:.0f} s without a worker")
        print(f"killed: {dict(sorted(self._killed.items()))}")
        print(f"tasks: {Task.objects.count()}, runs: {Run.objects.count()}")
        print(f"tasks resumed after {DEATHS} kills without progress: {client.resumed}")
        print(f"longest time that a task was running without a living worker: {lost.longest:.1f} s")
        print(f"of it, shown as running: {lost.longest_shown:.1f} s (a lease lasts {LEASE_SECONDS:g} s)")
        print(f"answers acknowledged: {len(client.acknowledged)}, faults: {len(faults)}")
        for fault in faults:
            print(f"  {fault}")
        for task in Task.objects.select_related("project", "sequence"):
            if _of_task(task, client):
                print(story(task))
        return 1 if faults else 0


def _is_gate(pid: int) -> bool:
    """A gate that is killed blocks its call, and a person is told (`security/test_gate_failure.py`): no agent
    dies of it. A process that has ended counts as one."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return True
    return any(word.endswith((b"/gate.pyc", b"|| exit 2")) for word in words)


def _open_tasks() -> list[Task]:
    return list(Task.objects.exclude(phase__in=ENDED).select_related("project", "sequence"))


def _end(processes: list[Child]) -> None:
    for child in processes:
        if child.process:
            child.process.terminate()
            child.process.wait(60)


def _faults(client: Client) -> list[str]:
    """Everything that is not as if nobody had been killed."""
    found = []
    if Task.objects.count() != client.created:
        found.append(f"{client.created} tasks were acknowledged and {Task.objects.count()} are there")
    for task in Task.objects.select_related("project", "sequence"):
        found += [f"task {task.pk}: {fault}" for fault in _of_task(task, client)]
    return found


def _of_task(task: Task, client: Client) -> list[str]:
    if task.phase != Phase.DONE:
        return [f"it is {task.phase}: {task.failure}"]
    found = []
    moves = Counter(task.transitions.filter(step=None).values_list("target", flat=True))
    if moves[Phase.DONE] != 1:
        found.append(f"it was done {moves[Phase.DONE]} times")
    if unfinished := Run.objects.filter(step__task=task, outcome="").count():
        found.append(f"{unfinished} runs have no end")
    if pids := marked_processes(paths.workspace(task).path):
        found.append(f"processes {pids} are left")
    for question in task.questions.all():
        found += [f"question {question.number}: {fault}" for fault in _of_question(question, client)]
    return found


def _of_question(question: Question, client: Client) -> list[str]:
    text = client.sent.get(question.pk)
    if question.state != QuestionState.ANSWERED or text is None:
        return [f"it is {question.state}, and the client sent {text!r}"]
    found = []
    if text not in str(question.answers) + question.answer_text:
        found.append(f"the answer {text!r} is lost: {question.answers!r}")
    told = _times_told(question, text)
    if told != 1:
        found.append(f"the agent was told {told} times")
    place = paths.repository(question.task.project)
    file = committed_text(place, commit=question.task.head_commit, path="after.txt")
    if file != f"{text}\n":
        found.append(f"the agent wrote {file!r} for {text!r}")
    return found


def _times_told(question: Question, text: str) -> int:
    """How many messages told the agent the answer: as result of the call that asked, or as a prompt."""
    ids = Run.objects.filter(step__task=question.task_id).values_list("session_id", flat=True)
    sessions = SessionEntry.objects.filter(session_id__in={str(one) for one in ids}, subpath="")
    rows = sessions.filter(entry__type="user")
    contents = [entry["message"]["content"] for entry in rows.values_list("entry", flat=True)]
    blocks = [block for content in contents for block in ([content] if isinstance(content, str) else content)]
    return sum(text in str(block) for block in blocks if _brings(block, question.tool_use_id))


def _brings(block: Any, call: str) -> bool:
    """Not the results of other calls: the agent writes the answer into a file, which is told back."""
    return isinstance(block, str) or block.get("type") == "text" or block.get("tool_use_id") == call
