"""The engine with the real agent program: what the model is told, and what waiting costs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from django.db import connection

from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.leftover_processes import WORKSPACE_VARIABLE, marked_processes
from tasks_app.agent.tools import REJECTED
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, Event, SessionEntry, Task, paths
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Limits
from tasks_app.services.decisions.changes import make_decision
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.questions.answers import Reply, answer_question, decide
from tasks_app.services.tasks import cancel_task
from tests.agents import connection_to
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import Installation
from tests.people import acting
from tests.runner import ONE_STEP, TWO_STEPS, Runner, file_in, results, runs
from tests.waiting import wait_until

pytestmark = pytest.mark.bubblewrap

WAITING = 10


def playing(scenario: str) -> str:
    return f"# Paint it\n\nrehearsal: {scenario}\n"


def prompts(server: RehearsalServer) -> list[str]:
    """The first prompt of each conversation with tools, as it came to the model."""
    found: list[str] = []
    for request in server.requests:
        if request.get("tools"):
            text = str(request["messages"][0]["content"])
            found += [text] if text not in found else []
    return found


@pytest.mark.once(on="sqlite")
def test_a_question_and_its_answer_stand_in_the_next_steps_prompt(
    real: Runner, server: RehearsalServer
) -> None:
    """H10, at the Messages API."""
    task = real.task(text=playing("ask-and-end"), config=TWO_STEPS)
    real.advance(task)
    real.answer_all(task, "Go on, but gently")
    assert real.advance(task).phase == Phase.DONE
    first, later = prompts(server)
    assert "HUMAN INTERACTION HISTORY" not in first
    assert "HUMAN INTERACTION HISTORY" in later
    assert "Stop here?" in later
    assert "Go on, but gently" in later


@pytest.mark.once(on="sqlite")
def test_with_a_threshold_of_nought_the_model_hears_no_word_of_asking(
    real: Runner, server: RehearsalServer
) -> None:
    """H1, H13, at the Messages API."""
    task = real.advance(real.task(text=playing("no-questions"), config=TWO_STEPS, threshold=0))
    assert task.phase == Phase.DONE
    assert len(prompts(server)) == 2
    for prompt in prompts(server):
        for word in ("AskUserQuestion", "cat-herder ask", "ask a human", "threshold", "INTERACTION"):
            assert word not in prompt
    for request in server.requests:
        assert "AskUserQuestion" not in {tool["name"] for tool in request.get("tools", [])}


@pytest.mark.once(on="postgres")
def test_a_session_that_is_gone_is_replayed_with_the_answer(real: Runner, server: RehearsalServer) -> None:
    """H9, at the Messages API."""
    task = real.advance(real.task(text=playing("ask-beside-tools")))
    assert task.phase == Phase.WAITING_FOR_INPUT
    SessionEntry.objects.all().delete()
    real.answer_all(task, "Liquorice ☃")
    assert real.advance(task).phase == Phase.DONE
    first, second = prompts(server)
    assert "PREVIOUS ACTIONS LOG" not in first
    log, feedback = second.split("--- FEEDBACK ---")
    assert "echo beside the question" in log.split("--- PREVIOUS ACTIONS LOG ---")[1]
    assert "Liquorice ☃" in feedback
    assert runs(task)[1].session_id != runs(task)[0].session_id


@pytest.mark.once(on="postgres")
def test_an_agent_that_never_falls_silent_can_be_cancelled(real: Runner) -> None:
    """R3: within seconds, and nothing is left of it."""
    task = real.task(text=playing("chatty"))

    def cancel() -> None:
        try:
            wait_until(Event.objects.filter(kind="tool_result").exists)
            cancel_task(Task.objects.get(pk=task.pk), by=acting(real.user))
        finally:
            connection.close()

    thread = threading.Thread(target=cancel)
    thread.start()
    real.advance(task)
    thread.join()
    assert task.phase == Phase.CANCELLED
    assert Event.objects.filter(kind="tool_result").count() < 40
    assert marked_processes(file_in(task, ".")) == []


def agents_of(installation: Installation) -> list[int]:
    """Processes that carry the cookie of any of the installation's workspaces."""
    cookie = f"{WORKSPACE_VARIABLE}={installation.data_dir}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                variables = (path / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found += [int(path.name)] if any(v.startswith(cookie) for v in variables) else []
    return found


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def waiting(installation: Installation) -> int:
    return int(installation.row("SELECT count(*) FROM tasks_app_task WHERE phase = 'waiting_for_input'")[0])


def failed(installation: Installation) -> int:
    return int(installation.row("SELECT count(*) FROM tasks_app_task WHERE phase = 'failed'")[0])


def test_while_ten_tasks_wait_no_agent_exists_and_the_worker_is_idle(
    installation: Installation, server: RehearsalServer
) -> None:
    """H4: no process, no thread, no slot, no CPU."""
    start = f"""
from tasks_app.services.tasks import create_task, start_task
from tasks_app.models import Project, User
from tasks_app.permissions import Principal
ann = Principal.unrestricted(User.objects.get(username="ann"))
for n in range({WAITING}):
    text = f"# Task {{n}}\\n\\nrehearsal: ask-and-end\\n"
    task = create_task(Project.objects.get(name="plain"), text, by=ann, where="test")
    start_task(task, by=ann)
"""
    installation.python(start)
    log_file = installation.data_dir / "worker.log"
    with log_file.open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "manage.py", "worker"],
            cwd=REPOSITORY,
            env=installation.env(ANTHROPIC_API_KEY="a-key", ANTHROPIC_BASE_URL=server.url),
            stderr=log,
        )
    try:
        wait_until(lambda: waiting(installation) + failed(installation) == WAITING, log=log_file)
        assert failed(installation) == 0, installation.row(
            "SELECT failure FROM tasks_app_task WHERE failure <> ''"
        )
        wait_until(lambda: agents_of(installation) == [], seconds=10)
        held = "SELECT count(*) FROM tasks_app_task WHERE lease_owner <> ''"
        wait_until(lambda: installation.row(held) == (0,), seconds=10)
        # Main, sweeper, heartbeat, housekeeper, calendar reader, dispatcher, publisher, scheduler, four that
        # wait for work, the API key proxy: none for a task. What sends the notices of the ten ends by itself.
        wait_until(lambda: threads_of(worker.pid) <= 13, seconds=30)
        before = cpu_ticks(worker.pid)
        time.sleep(2)  # a figure over time wants time to pass
        used = cpu_ticks(worker.pid) - before
        assert used <= 0.25 * 2 * os.sysconf("SC_CLK_TCK"), f"{used} ticks in 2 s"
        installation.answer_in_the_web(7, "Stop", by="ann")
        wait_until(lambda: waiting(installation) == WAITING - 1)
        wait_until(
            lambda: installation.row("SELECT count(*) FROM tasks_app_task WHERE phase = 'done'") == (1,)
        )
        assert waiting(installation) == WAITING - 1
    finally:
        worker.terminate()
        assert worker.wait(PATIENCE) == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.once(on="sqlite")
def test_an_agent_that_takes_all_memory_fails_with_the_reason(real: Runner) -> None:
    """M7, P6: a failed attempt; sent back, the same session is told and goes on."""
    assert isinstance(real.agent, ClaudeAgent)
    real.agent.sandbox = real.agent.sandbox.with_limits(Limits(memory=1 << 30), cgroup=None)
    config = "pipelines:\n  default:\n    - {name: do, command: self, retry: 1}\n"
    task = real.task(text=playing("take-all-memory"), config=config)
    assert real.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert first.session_id == second.session_id
    assert "The agent was ended. It used" in first.error and "CATHERDER_AGENT_MEMORY" in first.error
    assert "It used" in second.prompt
    assert marked_processes(paths.workspace(task).path) == []


CLARIFIED = TWO_STEPS.replace("clarify: false", "clarify: true")


@pytest.mark.once(on="sqlite")
def test_d8_two_questions_stand_on_one_card_before_planning_and_none_comes_later(
    real: Runner, server: RehearsalServer
) -> None:
    task = real.advance(real.task(text=playing("clarify-first"), config=CLARIFIED))
    (question,) = task.questions.select_related("step")
    assert (task.phase, question.step.name) == (Phase.WAITING_FOR_INPUT, "clarify")
    asked = [str(item["question"]) for item in question.items]
    answers = dict(zip(asked, ("Guests (Recommended)", "Yes"), strict=True))
    answer_question(question, Reply(answers, ""), by=acting(real.user), via=Channel.WEB)
    assert real.advance(task).phase == Phase.DONE
    question.refresh_from_db()
    assert (question.recommended, question.recommended_taken, task.questions.count()) == (2, 1, 1)
    assert [run.step.name for run in runs(task)] == ["clarify", "clarify", "plan", "implement"]
    assert file_in(task, "GREETING.md").read_text() == "Welcome!\n"
    first, plan, implement = prompts(server)
    assert "ask all of it in one call" in first
    for later in (plan, implement):
        assert "The goal is a greeting, as answered:" in later and "Who reads the greeting?" in later


@pytest.mark.once(on="sqlite")
def test_a_pass_that_finds_nothing_unclear_asks_nothing(real: Runner, server: RehearsalServer) -> None:
    task = real.advance(real.task(config=CLARIFIED, text="# Paint it\n\nIn blue.\n"))
    assert task.phase == Phase.WAITING_FOR_INPUT and not task.questions.filter(step__name="clarify").exists()
    assert "Nothing was unclear." in prompts(server)[1]
    (reading,) = [request for request in server.requests if request.get("tools")][:1]
    tools = {tool["name"] for tool in reading["tools"]}
    assert "AskUserQuestion" in tools and not tools & {"Write", "Edit", "NotebookEdit", "WebFetch"}


@pytest.mark.once(on="sqlite")
def test_a_pass_cannot_write(real: Runner) -> None:
    """Neither a tool that it does not have nor its shell changes a file."""
    task = real.advance(real.task(config=CLARIFIED, text=playing("clarify-writes")))
    assert task.phase == Phase.DONE
    assert not list(file_in(task, ".").glob("*.written"))
    refused = [text for text in results(task) if "was not run: in this" in text or "No such tool" in text]
    assert len(refused) == 2, results(task)


@pytest.mark.once(on="sqlite")
def test_what_the_program_dropped_beside_a_rejected_call_is_told_with_the_next_answer(
    real: Runner, tmp_path: Path
) -> None:
    """H7: it asks the gate about an approved call only if it takes the call for valid once more."""
    edit = {"file_path": "notes.txt", "old_string": "one", "new_string": "two"}
    question = {
        "question": "What now?", "header": "Now", "multiSelect": False,
        "options": [{"label": "Stop", "description": "End."}, {"label": "Go on", "description": "More."}],
    }  # fmt: skip
    shell = {"command": "sed -i s/one/three/ notes.txt", "description": "Change it"}
    turns = [
        {"tools": [{"name": "Read", "input": {"file_path": "notes.txt"}}]},
        {"tools": [{"name": "Edit", "input": edit}, {"name": "Bash", "input": shell}]},
        {"tools": [{"name": "AskUserQuestion", "input": {"questions": [question]}}]},
        {"text": "The end."},
    ]
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "dropped.yaml").write_text(
        yaml.safe_dump({"name": "dropped", "about": "A test.", "turns": turns})
    )
    project = real.project('askBefore: ["Edit(notes.txt)"]\n' + ONE_STEP, **{"notes.txt": "one\n"})
    with RehearsalServer(scenarios=folder) as server:
        real.agent = ClaudeAgent(real.sandbox, connection_to(server))
        task = real.advance(real.task(text=playing("dropped"), project=project))
        approval = task.questions.get()
        make_decision(project, DecisionContent("Money is stored in cents."), by=acting(real.user))
        decide(approval, "approved", by=acting(real.user), via=Channel.WEB, notes="Mind the roof.")
        real.advance(task)
        assert REJECTED in "".join(results(task))
        real.answer_all(task, "Stop")
        assert real.advance(task).phase == Phase.DONE
        last = str([one for one in server.requests if one.get("tools")][-1]["messages"])
    assert last.count("Mind the roof.") == 1 and last.count("Money is stored in cents.") == 1
