"""A done task opens with its result (V1)."""

from __future__ import annotations

from django.urls import reverse

from tasks_app.agent.fake_script import Turn, ask, say, shell, write
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, ReviewVerdict, Task
from tasks_app.services.reviews.reviews import send_review
from tests.browser import signed_in
from tests.people import acting
from tests.runner import ONE_STEP, Runner

CHECKED = ONE_STEP + "      check: {type: shell, command: test -s paint.txt}\n"
PAINTING = [
    Turn("I ask.", (ask("Which red?"),)),
    Turn(
        calls=(
            write("paint.txt", "red\nblue\n"),
            shell("mkdir -p many; for n in $(seq 20); do > many/$n; done"),
        )
    ),
    say("Painted in **two** colours."),
]


def page_of(runner: Runner, task: Task) -> str:
    return str(signed_in(runner.user).get(reverse("task_result", args=[task.pk])).text)


def test_v1_the_result_says_what_was_said_changed_checked_and_decided(runner: Runner) -> None:
    task = runner.advance(runner.task(PAINTING, config=CHECKED))
    assert "result-title" not in page_of(runner, task), "it is not done"
    runner.answer_all(task, "Crimson")
    task = runner.advance(task)
    assert task.phase == Phase.DONE
    page = page_of(runner, task)
    for words in (
        "Painted in <strong>two</strong> colours.", "and 9 more files", "test -s paint.txt", "Which red?",
        "Crimson", "answered by ann", "Review changes", "Send back", "Publish", "Patch", "git fetch",
    ):  # fmt: skip
        assert words in page, words
    whole = signed_in(runner.user).get(reverse("task", args=[task.pk])).text
    assert whole.index("result-title") < whole.index("log-title")


def test_v1_approvals_stand_at_the_result(runner: Runner) -> None:
    calls = (write("paint.txt", "red\n"), shell("printf 'a\\000b' > paint.bin"))
    task = runner.advance(runner.task([Turn(calls=calls), say("Painted.")]))
    send_review(task, ReviewVerdict.APPROVE, by=acting(runner.user), via=Channel.WEB)
    page = page_of(runner, task)
    assert "Approved by ann" in page and "paint.txt" in page and "+1" in page
    assert "binary" in page and ">+0<" not in page
    Task.objects.update(head_commit=task.base_commit)
    page = page_of(runner, task)
    assert "Approved by" not in page and "No files were changed." in page
    for offer in ("Review changes", ">Publish<", ">Patch<", "git fetch"):
        assert offer not in page, f"{offer}, of nothing"
    assert "Send back" in page


def test_v1_a_lost_commit_is_reported(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(write("paint.txt", "red\n"),)), say("Painted.")]))
    Task.objects.update(head_commit="1" * 40)
    assert "no longer has the commit" in page_of(runner, task)
