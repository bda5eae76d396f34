"""From a question to the browser, from an answer to the agent: a whole portal, the real CLI, a real browser.

All times come from one clock: rows are stamped by the portal, the browser's moments by its own `Date.now()`,
and the kernel says when the agent's program is executed. Floors are measured in turns with their figures.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tasks_app.agent.launch import bundled_cli
from tests import machine
from tests.bench.executions import Executions
from tests.bench.floors.halting import Floors
from tests.bench.metrics import Metric
from tests.portal import PASSWORD, UpPortal

#: Two steps, so that each task has one halt, one answer and one change of steps.
PIPELINE = """\
pipelines:
  asking:
    - {name: first, command: first}
    - {name: second, command: second}
"""
WATCH = """() => {
  window.seen = {}; window.painted = {}; window.sent = {}; window.confirmed = {};
  window.news = []; window.fetched = [];
  document.body.addEventListener('catherder:state', () => window.news.push(Date.now()));
  document.body.addEventListener('htmx:beforeSwap', () => window.fetched.push(Date.now()));
  document.body.addEventListener('htmx:beforeOnLoad', (event) => {
    const sent = event.detail.requestConfig.path.match(/questions\\/(\\d+)\\/answer/);
    if (sent) window.confirmed[sent[1]] = Date.now();
  });
  const look = () => document.querySelectorAll('[data-question][data-state=open]').forEach(
    (card) => {
      if (window.seen[card.dataset.question]) return;
      window.seen[card.dataset.question] = Date.now();
      // What comes after a frame's callbacks comes after its painting.
      requestAnimationFrame(() => setTimeout(() => { window.painted[card.dataset.question] = Date.now(); }));
    });
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, attributes: true});
  document.addEventListener('submit', (event) => {
    const card = event.target.closest('[data-question]');
    if (card) window.sent[card.dataset.question] = Date.now();
  }, true);
  look();
}"""
ROWS = """
def stamp(at): return at.timestamp() * 1000
result = []
for run in Run.objects.filter(step__task__project__name='bench', step__task__gt={warm_up}).order_by('pk'):
    calls = run.events.filter(kind='tool_use').order_by('seq')
    results = run.events.filter(kind='tool_result').order_by('seq')
    question = run.questions.first()
    ends = run.events.filter(kind='result')
    result.append({{
        'task': run.step.task_id, 'reason': run.reason,
        'started': stamp(run.started_at), 'ended': stamp(run.ended_at),
        'called': stamp(calls.last().at) if calls else None,
        'deferred': stamp(ends.last().at) if question and ends else None,
        'told': stamp(results.first().at) if results else None,
        'question': question and question.pk,
        'asked': question and stamp(question.asked_at),
        'answered': question and question.answered_at and stamp(question.answered_at),
        'claimed': [stamp(move.at) for move in run.step.task.transitions.filter(step=None, target='running')],
        'moved': {{move.target: stamp(move.at) for move in run.step.transitions.order_by('pk')}},
        'first': [stamp(event.at) for event in run.events.order_by('seq')[:1]],
    }})
"""
#: Only moves after which all is quiet for a while: the page joins news that come close together.
MOVES = """
result = [move.at.timestamp() * 1000 for move in Transition.objects.filter(
    step=None, task__project__name='bench', task__gt={warm_up}, target__in=['waiting_for_input', 'done'])]
"""
DONE = "result = Transition.objects.filter(task=%d, step=None).latest('pk').at.timestamp() * 1000"
#: The question is stored while the agent is still ending.
HALTED = """
import time
while not Run.objects.filter(step__task__phase='waiting_for_input', ended_at__isnull=False): time.sleep(0.1)
"""
BYTES = """
def size(rows, *fields):
    return sum(len(str(value)) for row in rows.values_list(*fields) for value in row)
task = Task.objects.filter(phase='waiting_for_input').latest('pk')
sessions = set(map(str, Run.objects.filter(step__task=task).values_list('session_id', flat=True)))
transcript = size(SessionEntry.objects.filter(session_id__in=sessions), 'entry')
rows = (size(Event.objects.filter(run__step__task=task), 'payload', 'raw')
    + size(task.questions, 'items', 'tool_input') + size(task.transitions, 'reason', 'source', 'target')
    + size(Run.objects.filter(step__task=task), 'prompt')
    + size(Task.objects.filter(pk=task.pk), 'text', 'body'))
result = [transcript, rows]
"""


def measure(tasks: int) -> list[Metric]:
    """Run `tasks` tasks one after the other; the figures of all their halts."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, ExitStack() as cleanup:
        portal = UpPortal(Path(folder) / "data").start()
        cleanup.callback(portal.stop)
        repository = asking_repository(Path(folder) / "repository")
        added = portal.manage("project", "add", "bench", str(repository))
        assert added.returncode == 0, added.stderr
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=machine.chromium(), args=arguments)
        cleanup.callback(browser.close)
        page = _signed_in(browser.new_page(), portal)
        warm_up = _one_task(page, portal, Browser())  # what is loaded only once is no part of a halt
        floors = Floors(Path(folder), repository, portal)
        cleanup.callback(floors.stop)
        executed = cleanup.enter_context(Executions(bundled_cli()))
        bubblewrap = shutil.which("bwrap")
        sandboxed = cleanup.enter_context(Executions(Path(bubblewrap))) if bubblewrap else None
        known = Browser()
        for _ in range(tasks):
            _one_task(page, portal, known)
            floors.measure()
        runs, moves = (portal.rows(script.format(warm_up=warm_up)) for script in (ROWS, MOVES))
        halts = Halts(runs, known, executed.milliseconds, sandboxed.milliseconds if sandboxed else None)
        changes = _news(moves, known.news, floors)
        return [*halts.metrics(floors), changes, *_waiting(portal), *floors.all, *halts.hops()]


def asking_repository(path: Path) -> Path:
    """Make a repository with a pipeline of two steps."""
    commands = path / ".claude" / "commands"
    commands.mkdir(parents=True)
    (path / "cat-herder.yaml").write_text(PIPELINE)
    for name in ("first", "second"):
        (commands / f"{name}.md").write_text("Do what the task says.\n")
    identity = ["-c", "user.name=Bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Bench"]):
        subprocess.run(["git", *identity, *words], cwd=path, check=True)
    return path


def _signed_in(page: Page, portal: UpPortal) -> Page:
    page.goto(portal.url)
    page.fill("[name=username], [name=login]", "admin")
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{portal.url}/tasks/")
    return page


def _one_task(page: Page, portal: UpPortal, known: Browser) -> int:
    """Answer the question of a new task on the page of the inbox, fetched anew. Return the task's id."""
    page.goto(f"{portal.url}/inbox/")
    page.evaluate(WATCH)
    number: int = portal.rows(asking_task())
    card = page.locator(f"[data-question][data-state=open]:has([href*='/tasks/{number}/'])")
    card.wait_for(timeout=60_000)
    card.locator("textarea").first.fill("Left.")
    card.locator("textarea").first.press("Control+Enter")
    done = _until_done(portal, number)
    page.wait_for_function("(done) => window.news.some((moment) => moment >= done)", arg=done)
    names = ("seen", "painted", "sent", "news", "fetched", "confirmed")
    seen, painted, sent, news, fetched, confirmed = page.evaluate(
        f"() => [{', '.join(f'window.{name}' for name in names)}]"
    )
    known.seen.update(seen)
    known.painted.update(painted)
    known.sent.update(sent)
    known.news.extend(news)
    known.fetched.extend(fetched)
    known.confirmed.update(confirmed)
    return number


def asking_task(then: str = "start_task(task, by=admin)") -> str:
    """Return a script that creates a task whose agent asks, and starts it. Its result is the task's id."""
    return (
        "from tasks_app.services.tasks import create_task, start_task\n"
        "from tasks_app.permissions import Principal\n"
        "admin = Principal.unrestricted(User.objects.get(username='admin'))\n"
        "task = create_task(Project.objects.get(name='bench'), '# Ask\\n\\nrehearsal: ask-command\\n',"
        " by=admin, where='bench', threshold=3)\n"
        f"{then}\nresult = task.pk"
    )


def _until_done(portal: UpPortal, number: int) -> float:
    """Return when the task's last phase was stored, in milliseconds.

    No process is started until then: it would use the processors while the agent resumes.
    """
    while (phase := portal.phase(number)) != "done":
        assert phase != "failed"
        time.sleep(0.1)
    moment: float = portal.rows(DONE % number)
    return moment


def _news(moves: list[float], news: list[float], floors: Floors) -> Metric:
    metric = Metric("phase moved → the browser knows", "ms", "50", floor=[floors.commit, floors.message])
    for at in moves:
        metric.samples += [moment - at for moment in news if moment >= at][:1]
    return metric


def _waiting(portal: UpPortal) -> list[Metric]:
    portal.rows(asking_task())
    portal.rows(HALTED)
    transcript, rows = portal.rows(BYTES)
    return [
        Metric("a waiting task: processes of its agent", "", "none", [len(portal.agents())]),
        Metric("a waiting task: its transcript", "kB", "", [transcript / 1000]),
        Metric("a waiting task: its other rows", "kB", "below 16", [rows / 1000]),
    ]


@dataclass(frozen=True)
class Browser:
    """Moments in the browser: news and fetched parts in order; the others by question.

    `seen` is the card in the page, `painted` the frame with it, `sent` the answer, and `confirmed` the
    response to it.
    """

    seen: dict[str, float] = field(default_factory=dict)
    painted: dict[str, float] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    news: list[float] = field(default_factory=list)
    fetched: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Halts:
    """What is known of all halts. `executed`: when the agent's program was executed, by the floors too.

    `sandboxed`: when bubblewrap was executed, for git and checks as well; None without it.
    """

    runs: list[dict[str, Any]]
    browser: Browser
    executed: list[float]
    sandboxed: list[float] | None = None

    def metrics(self, floors: Floors) -> list[Metric]:
        card = Metric("tool call read → card in the page", "ms", "× 1.5")
        card.floor = [floors.halted, floors.message]
        process = Metric("answer submitted → the next agent is executed", "ms", "80")
        process.floor = [floors.commit, floors.sandbox]
        told = Metric("answer submitted → answer is the tool's result", "ms", "× 1.25")
        told.floor = [floors.resumed]
        next_step = Metric("agent exit → the next step's agent is executed", "ms", "25; × 2")
        next_step.floor = [floors.status, floors.sandbox]
        for run in self._asking():
            card.samples.append(self._seen(run) - run["called"])
        for before, run in self._pairs("answer"):
            submitted = self._sent(before)
            process.samples += self._executed(submitted)
            told.samples.append(run["told"] - submitted)
        for before, _ in self._pairs("first"):
            next_step.samples += self._executed(before["ended"])
        return [card, process, told, next_step]

    def hops(self) -> list[Metric]:
        """Return where the time of a halt and of a resume goes, hop by hop."""
        halt = _Hops("halt")
        for run in self._asking():
            known = self._first(self.browser.news, run["asked"])
            halt.add("tool call read → the gate's deferral read", run["called"], run["deferred"])
            halt.add("deferral read → question stored", run["deferred"], run["asked"])
            halt.add("question stored → the browser knows", run["asked"], known)
            halt.add("the browser knows → card fetched", known, self._first(self.browser.fetched, known))
            halt.add("card fetched → in the page", self._first(self.browser.fetched, known), self._seen(run))
            painted = self.browser.painted.get(str(run["question"]))
            halt.add("in the page → painted", self._seen(run), painted)
            halt.add("(meanwhile: question stored → the agent has exited)", run["asked"], run["ended"])
        resume = _Hops("resume")
        for before, run in self._pairs("answer"):
            submitted, claimed = self._sent(before), self._first(run["claimed"], before["answered"])
            executed = self._first(self.executed, submitted)
            resume.add("answer submitted → stored", submitted, before["answered"])
            confirmed = self.browser.confirmed.get(str(before["question"]))
            resume.add("(meanwhile: stored → the browser has the response)", before["answered"], confirmed)
            resume.add("stored → claimed by a worker", before["answered"], claimed)
            resume.add("claimed → run stored", claimed, run["started"])
            self._add_execution(resume, run["started"], executed)
            resume.add("program executed → first message stored", executed, self._first(run["first"], 0))
            resume.add(
                "first message → answer is the tool's result", self._first(run["first"], 0), run["told"]
            )
        return [*halt.metrics, *resume.metrics, *self._hops_of_next_step().metrics]

    def _hops_of_next_step(self) -> _Hops:
        """Return where the time between two steps goes."""
        change = _Hops("next step")
        for before, run in self._pairs("first"):
            executed = self._first(self.executed, before["ended"])
            done, begun = before["moved"].get("done"), run["moved"].get("running")
            change.add("the agent has exited → its step is done", before["ended"], done)
            change.add("step done → next step begun", done, begun)
            change.add("step begun → its run stored", begun, run["started"])
            self._add_execution(change, run["started"], executed)
        return change

    def _add_execution(self, hops: _Hops, stored: float, executed: float | None) -> None:
        """Add what passes between a stored run and the execution of its program."""
        if self.sandboxed is None:
            hops.add("run stored → program executed", stored, executed)
            return
        sandboxed = self._last_between(self.sandboxed, stored, executed)
        hops.add("run stored → bubblewrap executed", stored, sandboxed)
        hops.add("bubblewrap executed → program executed", sandboxed, executed)

    def _asking(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["question"]]

    def _pairs(self, reason: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the runs that began for this reason, each with the one before it in its task."""
        return [
            (one, other)
            for one, other in zip(self.runs, self.runs[1:], strict=False)
            if one["task"] == other["task"] and other["reason"] == reason
        ]

    def _seen(self, run: dict[str, Any]) -> float:
        return self.browser.seen[str(run["question"])]

    def _sent(self, run: dict[str, Any]) -> float:
        return self.browser.sent[str(run["question"])]

    def _executed(self, after: float) -> list[float]:
        moment = self._first(self.executed, after)
        return [] if moment is None else [moment - after]

    @staticmethod
    def _first(moments: list[float], after: float | None) -> float | None:
        return next((one for one in moments if after is not None and one >= after), None)

    @staticmethod
    def _last_between(moments: list[float] | None, begin: float, end: float | None) -> float | None:
        between = [one for one in moments or [] if end is not None and begin <= one <= end]
        return between[-1] if between else None


class _Hops:
    """Metrics of the hops of one way, in order."""

    def __init__(self, way: str) -> None:
        self._way = way
        self._by_name: dict[str, Metric] = {}

    def add(self, name: str, begin: float | None, end: float | None) -> None:
        metric = self._by_name.setdefault(name, Metric(f"  {self._way}: {name}", "ms"))
        if begin is not None and end is not None:
            metric.samples.append(end - begin)

    @property
    def metrics(self) -> list[Metric]:
        return list(self._by_name.values())
