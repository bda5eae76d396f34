"""`cat-herder run_task`: the whole story in the terminal (H6, P12, R5).

With the real agent in rehearsal where the agent matters: the sample, what it asks in other ways, its end.
With the fake one where the test is about what the terminal shows and reads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.rehearsal.sample import SAMPLE_TASK_FILE
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import PLAIN_CONFIG, Installation, answering
from tests.integration.git_repository import GitRepository

ON_SAMPLE = ("run_task", SAMPLE_TASK_FILE, "--project", "sample")
#: What the fake agent says once it has been given the answer “Go on”.
HEARD = 'The answer was: The user answered: "Stop here?"="Go on"'
ODD_CENTS = "When a bill does not divide evenly, who pays the odd cents?"


@pytest.fixture
def plain(installation: Installation) -> tuple[Installation, tuple[str, ...]]:
    """A task whose fake agent asks one question and ends, and the command for it."""
    path = installation.task_file("# Ask once\n\nrehearsal: ask-and-end\n")
    return installation.with_fake_agent(), ("run_task", path, "--project", "plain")


@pytest.fixture
def slow(installation: Installation) -> Iterator[tuple[Installation, tuple[str, ...]]]:
    """A task at which the agent works for half a minute. No agent may be left after it."""
    path = installation.task_file("# Take your time\n\nrehearsal: slow\n")
    yield installation, ("run_task", path, "--project", "plain")
    wait_for_the_end_of(marked_processes(workspace(installation)))


@pytest.fixture
def slow_fake(
    slow: tuple[Installation, tuple[str, ...]],
) -> tuple[Installation, tuple[str, ...]]:
    """The same with the fake agent."""
    installation, command = slow
    return installation.with_fake_agent(), command


def wait_for_the_end_of(pids: list[int]) -> None:
    """Sooner than the agent would end by itself."""
    for pid in pids:
        with suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            poll = select.poll()
            poll.register(process, select.POLLIN)
            assert poll.poll(15_000), f"process {pid} of the agent is still there"
            os.close(process)


def workspace(installation: Installation) -> Path:
    return installation.task_dir() / "workspace"


def test_the_sample_is_done_with_an_answer_from_a_pipe(installation: Installation) -> None:
    done = installation.manage(*ON_SAMPLE, stdin="2\n")
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("plan (1 of 2)", ODD_CENTS, "2  The first guest pays", "│ Guest 1: 2.90 €"):
        assert told in done.stdout
    assert "Answered by Ann in the terminal: The first guest pays" in done.stdout
    assert "check passed: python3 -m unittest discover -s tests" in done.stdout
    fetch = done.stdout.rsplit("Fetch the result with  ", 1)[1].splitlines()[0].split()
    subprocess.run(fetch, cwd=installation.data_dir / "sample", check=True, capture_output=True)
    shown = ["git", "show", f"{fetch[-1].partition(':')[0]}:billsplit/__init__.py"]
    code = subprocess.run(shown, cwd=installation.data_dir / "sample", check=True, capture_output=True)
    assert b"[share + left_over]" in code.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.long
def test_the_commands_of_the_setup_are_printed_while_they_run(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = plain
    config = "setup: {run: ['echo one; sleep 1', 'true']}\n" + PLAIN_CONFIG
    source = GitRepository.make(installation.data_dir / "ready", **{"cat-herder.yaml": config})
    assert installation.manage("project", "add", "ready", str(source.path)).returncode == 0
    terminal = installation.terminal(*command[:-1], "ready")
    terminal.expect("Setup: $ echo one; sleep 1")
    terminal.expect("Setup: $ true")
    terminal.expect("✓ Setup: done (")
    terminal.expect("do (1 of 1)")
    terminal.expect("> ")
    terminal.kill()


def test_a_task_is_done_with_an_answer_at_the_prompt(plain: tuple[Installation, tuple[str, ...]]) -> None:
    installation, command = plain
    terminal = installation.terminal(*command)
    terminal.expect("Stop here?")
    terminal.expect("Type a number, or your own answer.\n> ")
    terminal.type("\n")
    terminal.expect("The answer is empty. Type a number, or your own answer.\n> ")
    terminal.type("2\n")
    terminal.expect("Answered by Ann in the terminal: Go on")
    terminal.expect("do (1 of 1, run 2 resumed with Ann’s answer)")
    assert terminal.end() == 0
    assert "Rehearsed: Ask once" in terminal.seen
    assert "http://127.0.0.1:8000/tasks/1/" in terminal.seen
    assert "Used     " in terminal.seen and "cat-herder review" not in terminal.seen, "nothing was changed"
    again = installation.manage("run_task", "1")
    assert (again.returncode, again.stdout) == (0, "Task 1 is already done: Ask once\n")


def test_without_input_it_says_how_to_answer_and_the_same_command_asks_again(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = plain
    first = installation.manage(*command, "--no-input")
    assert first.returncode == 3
    assert installation.phase() == "waiting_for_input"
    assert 'cat-herder answer 1 "…"' in first.stdout
    assert "http://127.0.0.1:8000/questions/1/" in first.stdout

    unanswered = installation.manage(*command, stdin="")
    assert unanswered.returncode == 3

    answered = installation.manage(*command, stdin="Go on")  # a last line without its end is a line
    assert answered.returncode == 0, answered.stdout + answered.stderr
    for told in (first.stdout, unanswered.stdout, answered.stdout):
        assert "Question 1 · plain › Ask once › do" in told
        assert "Stop here?" in told
    assert "Resuming task 1 of this file" in answered.stdout
    assert HEARD in answered.stdout
    assert installation.row("SELECT count(*) FROM tasks_app_task") == (1,)


@pytest.mark.long
def test_a_new_task_is_made_when_one_is_wanted(plain: tuple[Installation, tuple[str, ...]]) -> None:
    installation, command = plain
    installation.manage(*command, "--no-input")
    assert "Task 2" in installation.manage(*command, "--no-input", "--new").stdout


def test_json_is_all_that_is_on_stdout(plain: tuple[Installation, tuple[str, ...]]) -> None:
    installation, command = plain
    waiting = installation.manage(*command, "--json", "--no-input", "--ask", "ann", "--ask", "@bob")
    facts = json.loads(waiting.stdout)
    assert facts["ask"] == ["ann", "@bob"]
    assert (waiting.returncode, facts["exit_code"], facts["phase"]) == (3, 3, "waiting_for_input")
    assert facts["question"]["items"][0]["question"] == "Stop here?"
    assert facts["question"]["answer_with"] == 'cat-herder answer 1 "…"'
    assert "Stop here?" in waiting.stderr

    done = installation.manage(*command, "--json", stdin="2\n")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["exit_code"], facts["phase"]) == (0, 0, "done")
    assert facts["question"] is None
    assert facts["tokens"]["output"] > 0
    assert facts["fetch"] is None, "its agent changed nothing"


def test_a_task_that_fails_says_why_and_exits_with_1(installation: Installation) -> None:
    path = installation.task_file("# Too much\n\nrehearsal: overloaded\n")
    failed = installation.manage("run_task", path, "--project", "plain", "--json")
    facts = json.loads(failed.stdout)
    assert (failed.returncode, facts["exit_code"], facts["phase"]) == (1, 1, "failed")
    assert "429" in facts["failure"]
    assert "Failed: " in failed.stderr
    again = installation.manage("run_task", "1")
    assert again.returncode == 1
    assert "run 2" in again.stdout


@pytest.mark.long
def test_several_items_are_asked_in_turn(installation: Installation) -> None:
    path = installation.task_file("# Three things\n\nrehearsal: ask-multi\n")
    terminal = installation.with_fake_agent().terminal("run_task", path, "--project", "plain")
    terminal.expect("Which database?")
    terminal.expect("1 of 3 > ")
    terminal.type("2\n")
    terminal.expect("Type one or more numbers, separated by commas")
    terminal.expect("2 of 3 > ")
    terminal.type("1, pdf\n")
    terminal.expect("3 of 3 > ")
    terminal.type("first line\nsecond line ☃\n")  # pasted: both lines are one answer
    terminal.expect("Several lines pasted. Type more, or end with an empty line.")
    terminal.type("\n")
    assert terminal.end() == 0
    assert list(installation.answers().values()) == ["PostgreSQL", "CSV, PDF", "first line\nsecond line ☃"]


@pytest.mark.long
def test_a_question_by_command_is_answered_too(installation: Installation) -> None:
    """H3b."""
    path = installation.task_file("# Left or right\n\nrehearsal: ask-command\n")
    done = installation.manage("run_task", path, "--project", "plain", stdin="@/etc/passwd ☃\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The answer was: @/etc/passwd ☃" in done.stdout


@pytest.mark.long
def test_the_web_answers_first_while_the_terminal_waits(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = plain
    terminal = installation.terminal(*command)
    terminal.expect("> ")
    assert installation.answer_in_the_web(1, "Go on") == ""
    terminal.expect("Answered by bob in the web: Go on")
    terminal.expect(HEARD)
    assert terminal.end() == 0


@pytest.mark.long
def test_half_an_answer_does_not_fall_into_the_shell(plain: tuple[Installation, tuple[str, ...]]) -> None:
    """Somebody else answers while it is being typed; the shell would take the rest for a command."""
    installation, command = plain
    terminal = installation.terminal(*command)
    terminal.expect("> ")
    shell = os.open(f"/proc/{terminal.process.pid}/fd/0", os.O_RDONLY | os.O_NOCTTY)
    terminal.type("rm -rf")
    terminal.expect("rm -rf")
    assert installation.answer_in_the_web(1, "Go on") == ""
    terminal.expect(HEARD)
    assert terminal.process.wait(60) == 0
    terminal.type("ls\n")
    assert os.read(shell, 100) == b"ls\n"
    os.close(shell)
    terminal.end()


@pytest.mark.long
def test_a_command_to_copy_is_one_line_in_a_narrow_terminal(installation: Installation) -> None:
    """Its agent has changed a file, so there is something to fetch."""
    path = installation.task_file("# Ask beside tools\n\nrehearsal: ask-beside-tools\n")
    terminal = installation.with_fake_agent().terminal("run_task", path, "--project", "plain")
    terminal.expect("> ")
    terminal.type("2\n")
    assert terminal.end() == 0
    fetch = json.loads(installation.manage("status", "1", "--json").stdout)["fetch"]
    assert len(fetch) > 100, "the terminal has 100 columns"
    assert f"Fetch the result with  {fetch}\n" in terminal.seen


@pytest.mark.long
def test_the_terminal_answers_first_and_the_web_says_so(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = plain
    assert installation.manage(*command, stdin="Go on\n").returncode == 0
    assert installation.answer_in_the_web(1, "Stop").startswith("Answered by Ann at 20")
    late = installation.manage("answer", "1", "Stop", CATHERDER_USER="bob")
    assert late.returncode == 1
    assert late.stderr.startswith("error: Answered by Ann at 20")
    assert list(installation.answers().values()) == ["Go on"]


@pytest.mark.long
def test_an_answer_that_crosses_another_is_told_by_whom_when_and_what(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    """The web's answer is not stored yet when the terminal has read its own: only one can win."""
    installation, command = plain
    installation.manage(*command, "--no-input")
    held = f"""
from django.db import transaction
with transaction.atomic():
    exec({answering(1, "Go on")!r})
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.readline()
"""
    web = installation.fork(held)
    assert web.stdout.readline() == "held\n"
    terminal = installation.piped(*command)
    terminal.stdin.write("Stop at once\n")
    terminal.stdin.flush()
    while "Stop at once" not in (line := terminal.stdout.readline()):
        assert line, "the terminal did not read the answer"
    web.communicate("\n")
    told = terminal.communicate()
    assert "Your answer came too late. Answered by bob at 20" in told
    assert told.count("Answered by bob") == 1
    assert terminal.poll() == 0
    assert list(installation.answers().values()) == ["Go on"]


def test_ctrl_c_at_the_prompt_leaves_the_task_waiting(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = plain
    terminal = installation.terminal(*command)
    terminal.expect("> ")
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    assert installation.phase() == "waiting_for_input"
    assert 'cat-herder answer 1 "…"' in terminal.seen
    assert "cat-herder run_task 1 --project plain" in terminal.seen
    again = installation.manage("run_task", "1", stdin="Go on\n")
    assert again.returncode == 0
    assert "Question 1 · plain › Ask once › do" in again.stdout


@pytest.mark.long
def test_ctrl_d_at_the_prompt_leaves_the_task_waiting_too(
    plain: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = plain
    terminal = installation.terminal(*command)
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.end() == 3
    assert installation.phase() == "waiting_for_input"


def test_ctrl_c_while_the_agent_works_interrupts_the_task(
    slow: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = slow
    terminal = installation.terminal(*command)
    terminal.expect("$ touch slow-started.txt")
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    assert installation.phase() == "interrupted"
    assert installation.row("SELECT phase FROM tasks_app_step") == ("interrupted",)
    assert installation.row("SELECT outcome FROM tasks_app_run") == ("interrupted",)
    assert installation.row("SELECT lease_owner FROM tasks_app_task") == ("",)
    assert "Interrupted: Take your time" in terminal.seen


@pytest.mark.long
@pytest.mark.bubblewrap
def test_a_second_ctrl_c_leaves_at_once_and_the_agent_is_gone(
    slow: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = slow
    terminal = installation.terminal(*command)
    terminal.expect("$ touch slow-started.txt")
    terminal.press_ctrl_c()
    terminal.expect("Stopping …")
    terminal.press_ctrl_c()
    assert terminal.end() == 130


@pytest.mark.long
def test_a_terminal_follows_what_a_worker_of_the_portal_does(
    slow_fake: tuple[Installation, tuple[str, ...]],
) -> None:
    """The lease decides who works; Ctrl+C in a terminal that only follows stops nobody."""
    installation, command = slow_fake
    at_work = installation.terminal(*command)
    at_work.expect("$ touch slow-started.txt")
    following = installation.terminal("run_task", "1")
    following.expect("Another worker holds the task")
    following.press_ctrl_c()
    assert following.end() == 130
    assert "You left; the task continues without this terminal." in following.seen
    assert installation.phase() == "running"
    at_work.press_ctrl_c()
    assert at_work.end() == 130


@pytest.mark.long
def test_a_task_cancelled_in_the_web_ends_the_terminal(
    slow_fake: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = slow_fake
    terminal = installation.terminal(*command)
    terminal.expect("$ touch slow-started.txt")
    installation.python(
        "from tasks_app.services.tasks import cancel_task; from tasks_app.models import Task, User\n"
        "from tasks_app.permissions import Principal\n"
        "bob = Principal.unrestricted(User.objects.get(username='bob'))\n"
        "cancel_task(Task.objects.get(), by=bob)"
    )
    assert terminal.end() == 1
    assert "Cancelled: bob cancelled it" in terminal.seen


def test_words_that_the_parser_refuses_are_wrong_use(installation: Installation) -> None:
    refused = installation.manage("run_task", "--bad-option")
    assert refused.returncode == 2
    assert "the following arguments are required: PATH|ID" in refused.stderr


def test_a_database_without_migrations_is_reported(tmp_path: Path) -> None:
    refused = Installation(tmp_path).manage("status")
    assert refused.returncode == 2
    assert "Start the portal once: cat-herder up" in refused.stderr


@pytest.mark.long
def test_a_reader_who_leaves_gets_no_traceback(installation: Installation) -> None:
    command = [sys.executable, "manage.py", "project", "list"]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=installation.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 1


@pytest.mark.long
def test_a_project_is_removed_after_its_name_was_typed(installation: Installation) -> None:
    terminal = installation.terminal("project", "remove", "plain")
    terminal.expect("Type the project's name to continue: ")
    terminal.type("sample\n")
    assert terminal.end() == 2
    terminal = installation.terminal("project", "remove", "plain")
    terminal.expect("Type the project's name to continue: ")
    terminal.press_ctrl_c()
    assert terminal.end() == signal.SIGINT + 128
    terminal = installation.terminal("project", "remove", "plain")
    terminal.expect("Type the project's name to continue: ")
    terminal.type("plain\n")
    assert terminal.end() == 0
    assert installation.row("SELECT group_concat(name) FROM tasks_app_project") == ("sample",)


@pytest.fixture
def guarded(installation: Installation) -> tuple[Installation, tuple[str, ...]]:
    """A task whose project wants to be asked before a git tag is made."""
    installation.python(
        "from tasks_app.models import Project\n"
        'Project.objects.filter(name="plain").update(overrides={"ask_before": "Bash(git tag*)"})'
    )
    path = installation.task_file("# Release\n\nrehearsal: approve\n")
    return installation, ("run_task", path, "--project", "plain")


def test_a_tool_call_is_denied_at_the_prompt(guarded: tuple[Installation, tuple[str, ...]]) -> None:
    installation, command = guarded
    terminal = installation.terminal(*command)
    terminal.expect("git tag v1.0")
    terminal.expect("Type 1 to approve, 2 to deny.\n> ")
    terminal.type("perhaps\n")
    terminal.expect("Type 1 to approve, 2 to deny.\n> ")
    terminal.type("2\n")
    terminal.expect("Reason (required; sent to the agent):\n> ")
    terminal.type("Not on a Friday.\n")
    terminal.expect("Denied by Ann in the terminal: Not on a Friday.")
    assert terminal.end() == 0
    assert "no tag is made" in terminal.seen


@pytest.mark.long
def test_a_tool_call_is_approved_by_command_and_the_task_resumes(
    guarded: tuple[Installation, tuple[str, ...]],
) -> None:
    installation, command = guarded
    waiting = installation.manage(*command, "--no-input")
    assert (waiting.returncode, installation.phase()) == (3, "waiting_for_input")
    assert "cat-herder answer 1 --approve" in waiting.stdout and "│ git add" in waiting.stdout
    assert installation.manage("answer", "1", "--approve").returncode == 0
    done = installation.manage(*command)
    assert done.returncode == 0 and "tagged as `v1.0`" in done.stdout
