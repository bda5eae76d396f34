"""Approvals, plans and dismissals through the engine (H4, H7, H9, H10, R1, R2)."""

from __future__ import annotations

import html
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.cli.questions import show_question
from tasks_app.cli.terminal import Screen
from tasks_app.core.phases import Phase
from tasks_app.core.types import ALLOW_COMMAND, Ask
from tasks_app.engine.logs.compaction import compact_runs
from tasks_app.engine.prompts.values import history
from tasks_app.engine.runs.conclude import folder_of_shell
from tasks_app.engine.runs.steps import SET_ASIDE
from tasks_app.history.events.lines import format_event
from tasks_app.history.events.logs import LogKind, follow_log, render_log
from tasks_app.models import (
    Channel,
    Event,
    Outcome,
    Question,
    QuestionKind,
    QuestionState,
    Reason,
    Run,
    SessionEntry,
    Task,
    paths,
)
from tasks_app.notifications.message import text_of_question
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.services.publishing.pull_request_text import pull_request_body
from tasks_app.services.questions.answers import decide, dismiss_question
from tasks_app.web.rendering.activity import last_lines
from tests.api import Script
from tests.factories import RunFactory
from tests.fake_script import Act, End, Turn, ask, plan, say, shell, write
from tests.people import acting
from tests.runner import Runner, file_in, results, runs, step

pytestmark = pytest.mark.django_db(transaction=True)

GUARDED = shell("echo guarded >> guarded.txt")
RULED = """\
askBefore: ["Bash(*guarded*)"]
pipelines:
  default:
    - {name: do, command: self, retry: 1}
"""
PLANNED = """\
pipelines:
  default:
    - {name: do, command: self, planApproval: true}
"""
TWO = """\
askBefore: ["Bash(*guarded*)"]
pipelines:
  default:
    - {name: first, command: implement}
    - {name: second, command: implement}
"""


def settle(runner: Runner, task: Task, verdict: str, notes: str = "") -> Question:
    (question,) = task.questions.open()
    return decide(question, verdict, by=acting(runner.user), via=Channel.WEB, notes=notes).question


def guarded(task: Task) -> int:
    path = file_in(task, "guarded.txt")
    return len(path.read_text().splitlines()) if path.exists() else 0


def turned_down(task: Task) -> list[str]:
    """What the log says of the calls that a human did not want."""
    said = Event.objects.filter(run__step__task=task, payload__turned_down__isnull=False)
    return [event.payload["turned_down"] for event in said]


@pytest.mark.parametrize("threshold", [0, 3])
def test_a_task_waits_for_an_approval_as_for_a_question(runner: Runner, threshold: int) -> None:
    task = runner.advance(
        runner.task([Turn(calls=(GUARDED,)), say("Done.")], config=RULED, threshold=threshold)
    )
    assert (task.phase, step(task).phase) == (Phase.WAITING_FOR_INPUT, Phase.WAITING_FOR_INPUT)
    question = task.questions.get()
    assert (question.kind, question.state, question.deferred) == (
        QuestionKind.APPROVAL,
        QuestionState.OPEN,
        True,
    )
    assert question.evidence == [
        {"kind": "command", "title": "Command", "text": "echo guarded >> guarded.txt"},
        {"kind": "rule", "title": "Rule", "text": "Bash(*guarded*)"},
    ]
    assert [option["label"] for option in question.items[0]["options"]] == ["Approve", "Deny"]
    assert guarded(task) == 0
    settle(runner, task, "approved")
    assert runner.advance(task, owner="another worker").phase == Phase.DONE
    assert guarded(task) == 1 and turned_down(task) == []
    question.refresh_from_db()
    assert question.delivered_at is not None
    order = runner.fake.runs[-1]
    assert (order.prompt, order.may_ask) == (None, threshold > 0)


def test_h5_an_approval_shows_the_folder_of_the_shell() -> None:
    run = RunFactory.create()
    workspace = str(paths.placement().inside(paths.workspace(run.step.task).path))
    ask = Ask("toolu_1", "call", (), {"command": "rm -r build"}, "approval")
    assert not list(folder_of_shell(run, ask))
    for folder, shown in {workspace: [], f"{workspace}/docs/a": ["docs/a"], "/tmp": ["/tmp"]}.items():
        SessionEntry.objects.create(project_key="w", session_id=str(run.session_id), entry={"cwd": folder})
        assert [one.text for one in folder_of_shell(run, ask)] == shown


LONG = "echo guarded " + " ".join(f"file-{number}.txt" for number in range(40))


@pytest.mark.parametrize(
    "command", ["echo guarded >> guarded.txt", LONG], ids=["short", "longer than a line"]
)
def test_h5_an_approval_shows_the_command_and_the_rule_wherever_it_is_shown(
    runner: Runner, client: Client, command: str
) -> None:
    """Card, list of the inbox, log and its files, notifications, terminal and API."""
    task = runner.advance(runner.task([Turn(calls=(shell(command),)), say("Done.")], config=RULED))
    question = task.questions.get()
    client.force_login(runner.user)
    terminal = io.StringIO()
    show_question(Screen(terminal), question)
    shown = {
        "card": client.get(f"/questions/{question.pk}/").text,
        "log": client.get(f"/tasks/{task.pk}/log/").text,
        "log file": "".join(map(format_event, Event.objects.filter(run__step__task=task, kind="question"))),
        "API": Script(runner.user).get(f"/questions/{question.pk}").text,
        "terminal": terminal.getvalue(),
        "notification": text_of_question(question),
    }
    for where, text in shown.items():
        said = " ".join(html.unescape(text).replace("│", "").split())
        assert command in said and "Bash(*guarded*)" in said, where
    row = html.unescape(client.get("/inbox/").text)
    assert command[:150] in row.partition("inbox-rows")[2].partition("</ul>")[0]
    assert "rule" in row and "Bash(*guarded*)" in row


def test_a_denial_reaches_the_agent_with_its_reason_and_the_run_continues(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(GUARDED,)), say("I heard: {result}")], config=RULED))
    settle(runner, task, "denied", "Not today.")
    assert runner.advance(task).phase == Phase.DONE
    assert guarded(task) == 0
    assert f"{runner.user.shown_name} denied this call: Not today." in results(task)[-1]
    assert turned_down(task) == [f"denied by {runner.user.shown_name}"]


def test_calls_made_at_once_are_set_aside_without_a_human_and_made_one_by_one(runner: Runner) -> None:
    both = Turn(calls=(GUARDED, shell("echo guarded twice >> guarded.txt")))
    task = runner.advance(runner.task([both, Turn(calls=(GUARDED,)), say("Done.")], config=RULED))
    assert task.phase == Phase.WAITING_FOR_INPUT
    assert [run.outcome for run in runs(task)] == [Outcome.ASKED, Outcome.ASKED]
    assert [run.reason for run in runs(task)] == [Reason.FIRST, Reason.SET_ASIDE]
    assert task.questions.count() == 1 and guarded(task) == 0
    log = "".join(render_log(step(task), LogKind.OUTPUT))
    assert log.index("Outcome:    its calls were set aside") < log.index(
        "Outcome:    the agent needs an approval"
    )
    (told, *_) = results(task)
    assert "message of its own" in told and "What you asked" not in told
    assert "were not made either: `$ echo guarded >> guarded.txt`." in told, "the session has lost it"
    settle(runner, task, "approved")
    assert runner.advance(task).phase == Phase.DONE
    assert guarded(task) == 1


def test_a_call_before_a_question_is_said_not_to_be_made(runner: Runner) -> None:
    """The session keeps the question, and has lost the call."""
    asks = Turn(calls=(GUARDED, ask("Which colour?")))
    task = runner.advance(runner.task([asks, say("Done.")], config=RULED))
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    told = results(task)[-1]
    assert "Blue" in told and "`$ echo guarded >> guarded.txt`" in told and guarded(task) == 0


def calls_in_log(client: Client, task: Task) -> list[tuple[str, str]]:
    """The calls on the page of the log, each with what became of it."""
    page = client.get(f"/tasks/{task.pk}/log/").text
    found = re.findall(
        r'data-call=.*?class="machine">(.*?)</span>.*?class="call-outcome">(.*?)</span>', page, re.S
    )
    return [(html.unescape(call), html.unescape(outcome)) for call, outcome in found]


def told_anew(client: Client, task: Task) -> list[str]:
    """What an open page of the log is told of calls that it shows already."""
    page = client.get(f"/tasks/{task.pk}/log/?remarks", headers={"HX-Request": "true"}).text
    return [html.unescape(words) for words in re.findall(r"data-decides=[^>]*>(.*?)<", page)]


NOT_MADE = "not made (asked one at a time)"


def test_w2_the_log_says_of_each_call_what_became_of_it(runner: Runner, client: Client) -> None:
    again = "echo guarded again >> guarded.txt"
    acts = [Turn(calls=(GUARDED, shell(again))), Turn(calls=(shell(again),)), say("Done.")]
    task = runner.advance(runner.task(acts, config=RULED))
    client.force_login(runner.user)
    first, second = "$ echo guarded >> guarded.txt", f"$ {again}"
    before = [(first, NOT_MADE), (second, NOT_MADE)]
    assert calls_in_log(client, task) == [*before, (second, "waits for approval")]
    assert sorted(told_anew(client, task)) == [NOT_MADE, NOT_MADE, "waits for approval"]
    settle(runner, task, "denied", "Not today.\nNor tomorrow.")
    denied = f"denied by {runner.user.shown_name}: Not today. …"
    assert calls_in_log(client, task) == [*before, (second, denied)]
    assert denied in told_anew(client, task), "an open page is told"
    assert runner.advance(task).phase == Phase.DONE
    assert calls_in_log(client, task) == [*before, (second, denied)]
    for log in (render_log(step(task), LogKind.REASONING), follow_log(task, LogKind.REASONING, pause=exit)):
        lines = [line for line in "".join(log).splitlines() if "[TOOL_USE]" in line]
        assert [line.partition("→ ")[2] for line in lines] == [NOT_MADE, NOT_MADE, denied]
    assert next(line for _, line in last_lines(runs(task)[1])) == f"{second} → {denied}"


def test_w2_an_approved_call_that_failed_is_said_to_have_failed_and_stands_in_its_run(
    runner: Runner, client: Client
) -> None:
    task = runner.advance(runner.task([Turn(calls=(GUARDED,)), say("Done.")], config=RULED))
    settle(runner, task, "approved")
    assert runner.advance(task).phase == Phase.DONE
    client.force_login(runner.user)
    pages = (f"/tasks/{task.pk}/questions/", "/tasks/all/?kind=questions")
    assert not any("failed" in client.get(page).text.partition("rows-questions")[2] for page in pages)
    card = f"/questions/{task.questions.get().pk}/"
    told = [lambda: client.get(pages[0]).text, lambda: pull_request_body(task)]
    told += [lambda: client.get(f"/tasks/{task.pk}/result/").text, lambda: client.get(card).text]
    assert not any("the call failed" in tell() for tell in told)
    (result,) = Event.objects.filter(run__step__task=task, kind="tool_result")
    result.payload |= {"is_error": True, "text": "Exit code 2"}
    result.save()
    assert calls_in_log(client, task) == [
        (f"$ {GUARDED.input['command']}", f"approved by {runner.user.shown_name}")
    ]
    log = client.get(f"/tasks/{task.pk}/log/").text
    places = [log.index(words) for words in ("Approved by", "run 2, after an approval", "exit 2")]
    assert places == sorted(places), "its result comes after the approval"
    for compacted in (False, True):
        if compacted:
            Run.objects.update(ended_at=timezone.now() - timedelta(days=2))
            compact_runs(older_than=timedelta(days=1))
            assert not Event.objects.exists()
        assert ["the call failed" in tell() for tell in told] == [True] * 4
        assert "Approved, failed" in " ".join(client.get(pages[1]).text.split())


def test_an_agent_that_never_learns_it_fails_with_a_reason(runner: Runner) -> None:
    both = Turn(calls=(GUARDED, shell("echo guarded twice >> guarded.txt")))
    task = runner.advance(runner.task([both] * 9, config=RULED))
    assert (task.phase, len(runs(task))) == (Phase.FAILED, SET_ASIDE)
    assert "several calls at once" in task.failure


def test_an_approval_is_not_used_again_after_a_crash_in_the_middle_of_its_call(runner: Runner) -> None:
    """R1: nobody knows whether the call was made, so the agent is told so, and a human is asked again."""
    task = runner.advance(
        runner.task([Turn(calls=(GUARDED,)), Turn(calls=(GUARDED,)), say("Done.")], config=RULED)
    )
    settle(runner, task, "approved")
    died = Run.objects.create(
        step=step(task), number=2, reason="answer", session_id=runs(task)[0].session_id, resumed=True
    )
    task.questions.update(handed_in=died)
    task = runner.advance(task)
    assert "it may have been made" in results(task)[0]
    assert task.phase == Phase.WAITING_FOR_INPUT and guarded(task) == 0
    settle(runner, task, "approved")
    assert runner.advance(task).phase == Phase.DONE
    assert guarded(task) == 1


def test_a_plan_is_approved_before_the_step_writes(runner: Runner) -> None:
    acts = [
        Turn(calls=(plan("# One\n"),)),
        Turn(calls=(plan("# Two\n"),)),
        Turn(calls=(write("done.txt", "done"),)),
        say("Done."),
    ]
    task = runner.advance(runner.task(acts, config=PLANNED, threshold=0))
    first = settle(runner, task, "sent_back", "Smaller steps.")
    assert (first.kind, first.evidence[0]["text"]) == (QuestionKind.PLAN, "# One\n")
    runner.advance(task)
    assert "sent the plan back: Smaller steps." in results(task)[-1]
    assert turned_down(task) == [f"sent back by {runner.user.shown_name}"]
    assert not file_in(task, "done.txt").exists()
    second = settle(runner, task, "approved")
    assert second.evidence[0]["text"] == "# Two\n"
    assert runner.advance(task).phase == Phase.DONE
    assert file_in(task, "done.txt").exists()
    assert [order.planning for order in runner.fake.runs] == [True, True, True]


def test_a_step_that_ends_without_an_approved_plan_has_failed(runner: Runner) -> None:
    task = runner.advance(runner.task([say("Done.")], config=PLANNED))
    assert task.phase == Phase.FAILED
    assert "without an approved plan" in task.failure


def test_after_its_plan_was_approved_a_step_may_write_in_later_runs_too(runner: Runner) -> None:
    config = PLANNED.replace("planApproval", "retry: 1, check: {type: fileExists, path: b.txt}, planApproval")
    acts: list[Act] = [
        Turn(calls=(plan("# One\n"),)),
        say("Done."),
        Turn(calls=(write("b.txt", "b"),)),
        say("Now."),
    ]
    acts.insert(2, End())
    task = runner.advance(runner.task(acts, config=config))
    settle(runner, task, "approved")
    assert runner.advance(task).phase == Phase.DONE
    assert [order.planning for order in runner.fake.runs] == [True, True, False]


def test_a_dismissed_question_is_no_answer_to_the_agent(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask("Which colour?"),)), say("{result}")]))
    dismiss_question(task.questions.get(), by=acting(runner.user), via=Channel.WEB, notes="Up to you.")
    assert runner.advance(task).phase == Phase.DONE
    (told,) = results(task)
    assert f"{runner.user.shown_name} dismissed this question" in told and "best judgement" in told
    assert "notes: Up to you." in told
    assert task.questions.get().delivered_at is not None


def test_later_steps_read_verdicts_in_one_line_and_dismissals_as_such(runner: Runner) -> None:
    """H10"""
    acts = [Turn(calls=(ask("Which colour?"),)), Turn(calls=(GUARDED,)), say("Done.")]
    task = runner.advance(runner.task({"first": acts, "second": [say("Done.")]}, config=TWO))
    dismiss_question(task.questions.get(), by=acting(runner.user), via=Channel.WEB)
    runner.advance(task)
    settle(runner, task, "denied", "Not\nnow.")
    assert runner.advance(task).phase == Phase.DONE
    prompt = runner.fake.runs[-1].prompt or ""
    who = runner.user.shown_name
    assert (
        f"   Dismissed by: {who}" in prompt and "No answer: decide it by your own best judgement." in prompt
    )
    assert "Answered by" not in prompt
    (line,) = [line for line in prompt.splitlines() if line.startswith("2. Step first, ")]
    assert line.endswith(f"{ALLOW_COMMAND} `echo guarded >> guarded.txt`: Denied: Not now. (by {who})")
    assert [entry.outcome for entry in history(task)] == ["Dismissed", "Denied"]


@pytest.mark.parametrize(
    ("verdict", "notes", "told"),
    [
        ("approved", "", "Make it again if it is still needed"),
        ("denied", "Not today.", "Denied: Not today."),
        ("dismissed", "Up to you.", "Dismissed: there is no answer."),
    ],
)
def test_without_its_session_an_agent_is_told_in_words(
    runner: Runner, verdict: str, notes: str, told: str
) -> None:
    """H9"""
    first = ask("Which colour?") if verdict == "dismissed" else GUARDED
    sessions: list[Any] = [[Turn(calls=(first,))], [say("Done.")]]
    text = "---\nresume: replay\n---\n\n# Paint it\n"
    task = runner.advance(runner.task(lambda prompt: sessions["FEEDBACK" in prompt], config=RULED, text=text))
    if verdict == "dismissed":
        dismiss_question(task.questions.get(), by=acting(runner.user), via=Channel.WEB, notes=notes)
    else:
        settle(runner, task, verdict, notes)
    assert runner.advance(task).phase == Phase.DONE
    prompt = runner.fake.runs[-1].prompt or ""
    assert told in prompt
    assert "has answered" not in prompt
    assert guarded(task) == 0


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
class TestTheRealAgent:
    """With the CLI, sandboxed, through the engine."""

    def test_a_release_is_tagged_once_it_is_approved(self, real: Runner, server: RehearsalServer) -> None:
        text = "# Release it\n\nrehearsal: approve\n"
        config = RULED.replace("*guarded*", "git tag*")
        task = real.advance(real.task(text=text, config=config, threshold=0))
        question = task.questions.get()
        assert "git tag v1.0" in question.evidence[0]["text"]
        assert not tags(task)
        settle(real, task, "approved", "Go ahead.")
        assert real.advance(task, owner="another worker").phase == Phase.DONE
        assert tags(task) == ["v1.0"]
        assert "Go ahead." in str(server.requests[-1]["messages"])
        assert all("AskUserQuestion" not in str(request.get("tools")) for request in server.requests)

    @pytest.mark.long
    def test_a_release_is_not_tagged_when_it_is_denied(self, real: Runner) -> None:
        text = "# Release it\n\nrehearsal: approve\n"
        config = RULED.replace("*guarded*", "git tag*")
        task = real.advance(real.task(text=text, config=config))
        settle(real, task, "denied", "Not on a Friday.")
        assert real.advance(task).phase == Phase.DONE
        assert not tags(task)
        assert file_in(task, "RELEASE.md").exists()

    @pytest.mark.long
    def test_two_calls_of_one_message_are_approved_one_after_the_other(self, real: Runner) -> None:
        task = real.advance(real.task(text="# Both\n\nrehearsal: two-approvals\n", config=RULED))
        for name in ("first.txt", "second.txt"):
            assert name in task.questions.open().get().headline
            settle(real, task, "approved")
            real.advance(task)
            assert file_in(task, name).read_text() == "guarded\n"
        assert task.phase == Phase.DONE

    @pytest.mark.long
    def test_a_plan_is_sent_back_and_then_approved(self, real: Runner) -> None:
        task = real.advance(real.task(text="# Greet\n\nrehearsal: plan-first\n", config=PLANNED, threshold=0))
        assert "a greeting" in settle(real, task, "sent_back", "Say whom.").evidence[0]["text"]
        real.advance(task)
        assert "revised" in settle(real, task, "approved").evidence[0]["text"]
        assert real.advance(task).phase == Phase.DONE
        assert file_in(task, "GREETING.md").read_text() == "Hello!\n"

    @pytest.mark.long
    def test_a_question_is_dismissed(self, real: Runner) -> None:
        task = real.advance(real.task(text="# Ask\n\nrehearsal: ask-and-end\n"))
        dismiss_question(task.questions.get(), by=acting(real.user), via=Channel.WEB)
        assert real.advance(task).phase == Phase.DONE
        assert "dismissed this question" in results(task)[-1]


def tags(task: Task) -> list[str]:
    folder = paths.workspace(task).path / ".git"
    packed = folder / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    loose = [path.name for path in (folder / "refs" / "tags").glob("*")]
    return loose + [line.rsplit("/", 1)[-1] for line in lines if "refs/tags/" in line]
