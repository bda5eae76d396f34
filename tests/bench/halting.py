"""From a question to the browser, from an answer to the agent: a whole portal, the real CLI, a real browser.

All times come from one clock: rows are stamped by the portal, the browser's moments by its own `Date.now()`.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests import machine
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
  window.seen = {}; window.sent = {}; window.news = [];
  document.body.addEventListener('catherder:news', () => window.news.push(Date.now()));
  const look = () => document.querySelectorAll('[data-question][data-state=open]').forEach(
    (card) => { window.seen[card.dataset.question] ??= Date.now(); });
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
for run in Run.objects.filter(step__task__project__name='bench').order_by('pk'):
    calls = run.events.filter(kind='tool_use').order_by('seq')
    results = run.events.filter(kind='tool_result').order_by('seq')
    question = run.questions.first()
    result.append({
        'task': run.step.task_id, 'reason': run.reason,
        'started': stamp(run.started_at), 'ended': stamp(run.ended_at),
        'called': stamp(calls.last().at) if calls else None,
        'told': stamp(results.first().at) if results else None,
        'question': question and question.pk,
    })
"""
#: Only moves after which all is quiet for a while: the page joins news that come close together.
MOVES = """
result = [move.at.timestamp() * 1000 for move in Transition.objects.filter(
    step=None, task__project__name='bench', target__in=['waiting_for_input', 'done'])]
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
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        portal = UpPortal(Path(folder) / "data").start()
        try:
            repository = _repository(Path(folder) / "repository")
            added = portal.manage("project", "add", "bench", str(repository))
            assert added.returncode == 0, added.stderr
            arguments = ["--no-sandbox", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path=machine.chromium(), args=arguments)
            page = _signed_in(browser.new_page(), portal)
            for _ in range(tasks):
                _one_task(page, portal)
            seen, sent, news = page.evaluate("() => [window.seen, window.sent, window.news]")
            waiting = _waiting(portal)
            browser.close()
            changes = _news(portal.rows(MOVES), news)
            return [*_halts(portal.rows(ROWS), seen, sent), changes, *waiting]
        finally:
            portal.stop()


def _repository(path: Path) -> Path:
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
    page.wait_for_url(f"{portal.url}/")
    page.goto(f"{portal.url}/inbox/")
    page.evaluate(WATCH)
    return page


def _one_task(page: Page, portal: UpPortal) -> None:
    number = portal.rows(_create("start_task(task, by=admin)"))
    card = page.locator(f"[data-question][data-state=open]:has([href*='/tasks/{number}/'])")
    card.wait_for(timeout=60_000)
    card.locator("textarea").first.fill("Left.")
    card.locator("textarea").first.press("Control+Enter")
    _until_done(portal, number)


def _create(then: str) -> str:
    return (
        "from tasks_app.services.tasks import create_task, start_task\n"
        "from tasks_app.permissions import Principal\n"
        "admin = Principal.unrestricted(User.objects.get(username='admin'))\n"
        "task = create_task(Project.objects.get(name='bench'), '# Ask\\n\\nrehearsal: ask-command\\n',"
        " by=admin, where='bench', threshold=3)\n"
        f"{then}\nresult = task.pk"
    )


def _until_done(portal: UpPortal, number: int) -> None:
    wait = (
        "import time\nwhile (result := Task.objects.get(pk=%d).phase) != 'done':\n"
        "    assert result != 'failed'\n    time.sleep(0.1)"
    )
    portal.rows(wait % number)


def _news(moves: list[float], news: list[float]) -> Metric:
    metric = Metric("phase moved → the browser knows", "ms", "50")
    for at in moves:
        metric.samples += [moment - at for moment in news if moment >= at][:1]
    return metric


def _waiting(portal: UpPortal) -> list[Metric]:
    portal.rows(_create("start_task(task, by=admin)"))
    portal.rows("import time\nwhile not Task.objects.filter(phase='waiting_for_input'): time.sleep(0.1)")
    transcript, rows = portal.rows(BYTES)
    return [
        Metric("a waiting task: processes of its agent", "", "none", [len(portal.agents())]),
        Metric("a waiting task: its transcript", "kB", "", [transcript / 1000]),
        Metric("a waiting task: its other rows", "kB", "below 16", [rows / 1000]),
    ]


def _halts(runs: list[dict[str, Any]], seen: dict[str, float], sent: dict[str, float]) -> list[Metric]:
    called = Metric("tool call read → card visible in the browser", "ms", "120")
    ended = Metric("asking agent has exited → card visible in the browser", "ms")
    process = Metric("answer submitted → next agent process started", "ms", "80")
    told = Metric("answer submitted → answer is the tool's result", "ms", "580")
    next_step = Metric("agent exit → next step's agent started", "ms", "25")
    for before, run in zip([None, *runs], runs, strict=False):
        identity = str(run["question"])
        if identity in seen and run["called"]:
            called.samples.append(seen[identity] - run["called"])
            ended.samples.append(seen[identity] - run["ended"])
        if before and before["task"] == run["task"]:
            if run["reason"] == "answer":
                submitted = sent[str(before["question"])]
                process.samples.append(run["started"] - submitted)
                told.samples.append(run["told"] - submitted)
            elif run["reason"] == "first":
                next_step.samples.append(run["started"] - before["ended"])
    return [called, ended, process, told, next_step]
