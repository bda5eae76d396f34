"""What a person writes to the agent when a task is resumed or retried, as the agent reads it (H7, R1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.models import Run, Sequence, Task
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.services.bulk import retry_from
from tasks_app.services.sequences import resume_sequence
from tasks_app.services.tasks import MAX_MESSAGE, cancel_task, resume_task
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, RunFactory, SequenceFactory, TaskFactory
from tests.fake_script import Act, Die, End, Turn, say, write
from tests.integration.conftest import Manage
from tests.people import acting
from tests.runner import Runner, step

WORDS = "The key is in the vault now.\nLeave `old_endpoint` alone."
QUOTED = "> The key is in the vault now.\n> Leave `old_endpoint` alone."
FAILING = """\
pipelines:
  default:
    - name: do
      command: self
      retry: 0
      check: {type: shell, command: "false"}
"""


def next_request(real: Runner, task: Task, server: RehearsalServer) -> list[dict[str, Any]]:
    """The messages of the first request of the agent that goes on with the task."""
    before = [request for request in server.requests if request.get("tools")]
    real.advance(task)
    return list([one for one in server.requests if one.get("tools")][len(before)]["messages"])


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
def test_the_session_of_a_failed_task_goes_on_with_it(real: Runner, server: RehearsalServer) -> None:
    task = real.advance(real.task(config=FAILING, text="# Paint it\n\nrehearsal: no-questions\n"))
    assert task.phase == Phase.FAILED
    resume_task(task, by=acting(real.user), message=WORDS)
    *_, prompt = next_request(real, task, server)
    assert QUOTED in str(prompt["content"]).replace("\\n", "\n")
    assert real.user.shown_name in str(prompt["content"])
    resume_task(task, by=acting(real.user), message="And hurry.")
    *_, prompt = next_request(real, task, server)
    assert "> And hurry." in str(prompt["content"]) and "vault" not in str(prompt["content"])


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
def test_the_new_session_of_a_retried_step_begins_with_it(real: Runner, server: RehearsalServer) -> None:
    task = real.advance(real.task(config=FAILING, text="# Paint it\n\nrehearsal: no-questions\n"))
    retry_from(task, step(task), by=acting(real.user), message=WORDS)
    (first, *_) = next_request(real, task, server)
    assert QUOTED in str(first["content"]).replace("\\n", "\n")


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
def test_it_stands_beside_the_answer_that_a_cancelled_task_waited_for(
    real: Runner, server: RehearsalServer
) -> None:
    task = real.advance(real.task(text="# Paint it\n\nrehearsal: ask-in-a-row\n"))
    cancel_task(task, by=acting(real.user))
    resume_task(task, by=acting(real.user), message=WORDS)
    real.answer_all(task, "Blue")
    told = str(next_request(real, task, server)).replace("\\n", "\n")
    assert '"Which one?"="Blue"' in told and QUOTED in told
    assert not Run.objects.filter(step__task=task).last().prompt  # type: ignore[union-attr]


TWO_STEPS = """\
pipelines:
  default:
    - {name: do, command: implement, retry: 0, check: {type: shell, command: "test -e second.txt"}}
    - {name: review, command: self-review}
"""


@pytest.mark.django_db(transaction=True)
def test_later_steps_read_it_and_a_session_reads_it_once(runner: Runner) -> None:
    do: list[Act] = [say("Done."), End(), Die(-9), Turn("Again.", (write("second.txt", "x"),)), End()]
    task = runner.advance(runner.task({"do": do, "review": [say("Fine.")]}, config=TWO_STEPS))
    assert task.phase == Phase.FAILED
    resume_task(task, by=acting(runner.user), message=WORDS)
    runner.advance(task)
    assert runner.advance(task).phase == Phase.DONE
    page = signed_in(runner.user).get(f"/tasks/{task.pk}/").text
    assert WORDS.split()[0] in page.partition("Messages to the agent")[2], "the result says what was told"
    prompts = [run.prompt or "" for run in Run.objects.order_by("pk")]
    assert [prompt.count(QUOTED) for prompt in prompts] == [0, 1, 0, 1]
    assert [prompt.count("counts like the task itself") for prompt in prompts] == [0, 1, 0, 0]
    assert "Step do got it, and has ended since" in prompts[-1]


@pytest.fixture
def failed(db: None) -> Task:
    task = TaskFactory.create(phase=Phase.FAILED)
    RunFactory.create(step=step(task, task.steps.first().name))  # type: ignore[union-attr]
    task.steps.update(phase=Phase.FAILED)
    return task


def by_page(task: Task, retry: bool, message: str, manage: Manage) -> Any:
    address = reverse("task_retry", args=[task.pk, 1]) if retry else reverse("task_resume", args=[task.pk])
    return member(task).post(address, {"files": "now", "message": message.replace("\n", "\r\n")}, follow=True)


def by_command(task: Task, retry: bool, message: str, manage: Manage) -> None:
    chosen = ["--from", task.steps.get(position=1).name] if retry else []
    by = MembershipFactory.create(project=task.project).user.username
    assert manage("retry", task.pk, *chosen, "--queue", "--as", by, "--message", message)[0] == 0


def by_api(task: Task, retry: bool, message: str, manage: Manage) -> Any:
    script = Script(MembershipFactory.create(project=task.project).user)
    return script.post(f"/tasks/{task.pk}/{'steps/1/retry' if retry else 'resume'}", {"message": message})


def member(task: Task) -> Client:
    return signed_in(MembershipFactory.create(project=task.project).user)


@pytest.mark.parametrize("retry", [False, True], ids=["resume", "retry"])
@pytest.mark.parametrize("way", [by_page, by_api, by_command])
def test_the_log_says_who_wrote_it(
    failed: Task, manage: Manage, way: Callable[..., Any], retry: bool
) -> None:
    way(failed, retry, WORDS, manage)
    kept = failed.transitions.exclude(message="").get()
    assert kept.message == WORDS
    text = "".join(render_log(failed.steps.get(position=1), LogKind.OUTPUT))
    assert f"{kept.actor.shown_name} wrote to the agent" in text  # type: ignore[union-attr]
    assert "Leave `old_endpoint` alone." in text
    page = member(failed).get(reverse("task_log", args=[failed.pk])).text
    assert "Leave <code>old_endpoint</code> alone." in page and "wrote to the agent" in page


@pytest.mark.parametrize("retry", [False, True], ids=["resume", "retry"])
@pytest.mark.parametrize("way", [by_page, by_api, by_command])
@pytest.mark.parametrize("message", ["", " \n"])
def test_without_a_message_nothing_is_stored(
    failed: Task, manage: Manage, way: Callable[..., Any], retry: bool, message: str
) -> None:
    way(failed, retry, message, manage)
    assert failed.transitions.filter(target=Phase.PENDING, step=None).count() == 1
    assert not failed.transitions.exclude(message="")


@pytest.mark.parametrize("way", [by_page, by_api])
def test_one_that_is_too_long_is_refused_with_words(
    failed: Task, manage: Manage, way: Callable[..., Any]
) -> None:
    answer = way(failed, False, "x" * (MAX_MESSAGE + 1), manage)
    failed.refresh_from_db()
    assert failed.phase == Phase.FAILED
    assert f"at most {MAX_MESSAGE}" in answer.text.replace(",", "")


def test_a_sequence_hands_it_to_its_current_task_only(db: None) -> None:
    sequence = SequenceFactory.create(phase=Phase.FAILED)
    by = acting(MembershipFactory.create(project=sequence.project).user)
    with pytest.raises(BadInput, match="no agent reads"):
        resume_sequence(sequence, by=by, message=WORDS)
    task = TaskFactory.create(project=sequence.project, sequence=sequence, phase=Phase.FAILED)
    task.steps.update(phase=Phase.FAILED)
    resume_sequence(Sequence.objects.get(pk=sequence.pk), by=by, message=WORDS)
    assert task.transitions.filter(message=WORDS).count() == 1
