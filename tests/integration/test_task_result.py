"""A done task opens with its result (V1)."""

from __future__ import annotations

import json
from html import unescape

import pytest
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.models import Channel, DecisionEvent, DecisionEventKind, Reason, ReviewVerdict, Task
from tasks_app.prompting.feedback import asks_something, unread_question_feedback
from tasks_app.services.bulk import retry_from
from tasks_app.services.decisions.answering import DecisionInput, Remember
from tasks_app.services.difference import difference_of
from tasks_app.services.publishing.pull_request_text import commit_message, pull_request_body
from tasks_app.services.questions.answers import Reply, answer_question, decide
from tasks_app.services.results import accounts_of, building_account_first
from tasks_app.services.reviews import NewThread, send_review
from tasks_app.services.sequences import create_sequence, start_sequence
from tasks_app.services.wait_sentences import phase_sentence
from tests.agents import question
from tests.browser import signed_in
from tests.factories import ROUNDING, DecisionFactory, ThreadFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, End, Turn, ask, plan, say, shell, write
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.people import acting
from tests.runner import ONE_STEP, Runner, runs, script

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
    return tidy(signed_in(runner.user).get(reverse("task_result", args=[task.pk])).text)


def test_a_question_that_is_cut_says_so_and_leads_to_the_whole(runner: Runner) -> None:
    """The sentence that asks stood there as if it were all that had been asked."""
    acts = [Turn("I ask.", (ask("There are two. Which red?\n\nIt is for the door."),)), say("Painted.")]
    task = runner.advance(runner.task(acts))
    question = task.questions.get()
    runner.answer_all(task, "Crimson")
    runner.advance(task)
    page = page_of(runner, task)
    assert f"?question={question.number}" in page.partition("… Which red? …")[0] and "It is for" not in page


def test_v1_the_result_says_what_was_said_changed_checked_and_decided(runner: Runner) -> None:
    task = runner.advance(runner.task(PAINTING, config=CHECKED))
    assert "result-title" not in page_of(runner, task), "it is not done"
    runner.answer_all(task, "Crimson")
    task = runner.advance(task)
    assert task.phase == Phase.DONE
    page = page_of(runner, task)
    for words in (
        "Painted in <strong>two</strong> colours.", "and 9 more files", "test -s paint.txt", "Which red?",
        "Crimson", "· answered by ann", "in do</span>", "Request changes", "Approve and publish",
        "git fetch",
    ):  # fmt: skip
        assert words in page, words
    whole = signed_in(runner.user).get(reverse("task", args=[task.pk])).text
    assert "do-review" in whole and "log-title" not in whole, "the log has a page of its own"


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
    assert "Request changes" in page


def test_v1_a_lost_commit_is_reported(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(write("paint.txt", "red\n"),)), say("Painted.")]))
    Task.objects.update(head_commit="1" * 40)
    assert "no longer has the commit" in page_of(runner, task)


STEPS = """\
pipelines:
  default:
    clarify: false
    steps:
    - name: plan
      command: plan-task
    - name: implement
      command: implement
      check: {type: shell, command: test -s done.txt}
      retry: 1
    - name: docs
      command: docs-update
"""
SPEAKING: dict[str, list[Act]] = {
    "plan": [Turn(calls=(write("PLAN.md", "# Plan\n"),)), say("I planned it.")],
    "implement": [
        Turn(calls=(write("paint.txt", "red\n"),)),
        say("I painted it red, in `paint.txt`."),
        End(),
        Turn(calls=(write("done.txt", "x\n"),)),
        say("I added a file; nothing else was changed."),
    ],
    "docs": [say("No page needed a change.")],
}


@pytest.fixture
def spoken(runner: Runner) -> Task:
    task = runner.advance(runner.task(SPEAKING, config=STEPS))
    assert task.phase == Phase.DONE
    return task


def test_v1_the_result_tells_what_every_step_said_the_one_that_built_first(
    runner: Runner, spoken: Task
) -> None:
    page = page_of(runner, spoken)
    said = ("nothing else was changed", "I painted it red", "I planned it.", "No page needed a change.")
    places = [page.index(words) for words in said]
    assert places == sorted(places), "the newest message of a step is first"
    folded = page[page.index("<details") :].partition("<textarea")[0]  # in which the newest stands too
    assert said[0] not in folded and all(words in folded for words in said[1:])
    assert page.count("check failed</summary>") == 1 and "Run 1, first run, check failed</summary>" in page
    assert "Run 2, after a failed check</p>" in page, "of each message it is clear which run said it"


@pytest.mark.parametrize("closing", [[], [say("I painted it blue.")]], ids=["silent", "said"])
def test_v1_the_account_of_a_replaced_attempt_does_not_stand_as_the_current_one(
    runner: Runner, manage: Manage, closing: list[Act]
) -> None:
    """After a retry, also where the new attempt says nothing."""
    task = runner.advance(runner.task([Turn(calls=(write("paint.txt", "red\n"),)), say("It is red.")]))
    retry_from(task, task.steps.get(), by=acting(runner.user))
    runner.agent = FakeAgent(lambda prompt: [Turn(calls=(write("paint.txt", "blue\n"),)), *closing])
    task = runner.advance(task)
    assert task.phase == Phase.DONE, task.failure
    page = page_of(runner, task)
    open_part, _, folded = page.partition("<details")
    assert "It is red." not in open_part and "It is red." in folded
    assert ("I painted it blue." in open_part) is bool(closing)
    assert "replaced by a later attempt</summary>" in folded
    what = pull_request_body(task).partition("## What")[2].partition("## Why")[0]
    assert "It is red." in what.partition("<details>")[2]
    shown = manage("status", task.pk)[1]
    assert shown.index("replaced by a later attempt") < shown.index("It is red.")


def test_v1_what_later_steps_changed_stands_beside_their_account(runner: Runner, manage: Manage) -> None:
    """The message of the step that built the result may name numbers that are not true any more."""
    play: dict[str, list[Act]] = {
        "plan": [Turn(calls=(write("PLAN.md", "1. Paint.\n"),)), say("I planned it.")],
        "implement": [Turn(calls=(write("paint.txt", "red\n"), write("done.txt", "x\n"))), say("One test.")],
        "docs": [Turn(calls=(write("paint.txt", "blue\ngreen\n"),)), say("Two tests.")],
    }
    task = runner.advance(runner.task(play, config=STEPS))
    assert task.phase == Phase.DONE, task.failure
    page = page_of(runner, task)
    assert page.index("One test.") < page.index("1 file (+2 −1) after that") < page.index("Two tests.")
    assert "2 files (+" not in page[: page.index("One test.")], "of the first account all is told there"
    assert "1 file (+2 −1)" in pull_request_body(task)
    assert "docs changed 1 file" in manage("status", task.pk)[1]
    messages = json.loads(manage("status", task.pk, "--json")[1])["messages"]
    names = ("changed_files", "lines_added", "lines_removed")
    changes = {one["step"]: tuple(one[name] for name in names) for one in messages}
    assert changes == {"implement": (2, 2, 0), "plan": (0, 0, 0), "docs": (1, 2, 1)}


def test_v1_a_review_keeps_the_account(runner: Runner, manage: Manage, spoken: Task) -> None:
    runner.agent = FakeAgent(lambda prompt: [say("I answered the thread.")])
    send_review(
        spoken, ReviewVerdict.REQUEST_CHANGES, body="Why red?", by=acting(runner.user), via=Channel.WEB
    )
    page = page_of(runner, runner.advance(spoken))
    assert "I painted it red" in page
    assert page.index("I answered the thread.") < page.index("No page needed a change.")
    for kind in ("output", "reasoning"):
        log = manage("log", spoken.pk, "--kind", kind)[1]
        assert log.index("[REVIEW] ann requested changes\n    Why red?") < log.rindex(
            "I answered the thread."
        )


def test_v7_the_pull_request_tells_it_too(spoken: Task) -> None:
    what = pull_request_body(spoken).partition("## What")[2].partition("## Why")[0]
    said = ("nothing else was changed", "I painted it red", "I planned it.", "No page needed a change.")
    places = [what.index(words) for words in said]
    assert places == sorted(places)
    assert what.count("<details>") == what.count("</details>") == 3


def test_v7_no_message_reaches_beyond_its_part(runner: Runner) -> None:
    acts: list[Act] = [Turn(calls=(write("done.txt", "x\n"),)), say("</details>\n```\nopen")]
    body = pull_request_body(runner.advance(runner.task({**SPEAKING, "implement": acts}, config=STEPS)))
    assert body.count("</details>") == 2 and body.count("```") == 2


def test_v1_programs_and_the_terminal_are_told_too(manage: Manage, spoken: Task) -> None:
    messages = json.loads(manage("status", spoken.pk, "--json")[1])["messages"]
    assert [(one["step"], one["run"], one["reason"]) for one in messages] == [
        ("implement", 1, "first"), ("implement", 2, "check_failed"),
        ("plan", 1, "first"), ("docs", 1, "first"),
    ]  # fmt: skip
    shown = manage("status", spoken.pk)[1]
    assert shown.index("nothing else was changed") < shown.index("I painted it red")
    assert "plan, docs" in shown and "implement, run 1, first run, check failed" in shown


def test_v1_where_no_step_implements_the_one_that_changed_most_is_first(runner: Runner) -> None:
    config = """\
pipelines:
  default:
    clarify: false
    steps: [{name: one, command: tidy}, {name: two, command: tidy}, {name: three, command: tidy}]
"""
    play: dict[str, list[Act]] = {
        "one": [Turn(calls=(write("PLAN.md", "x\n" * 50),)), say("First.")],
        "two": [Turn(calls=(write("paint.txt", "red\n" * 9),)), say("Second.")],
        "three": [Turn(calls=(write("note.txt", "x\n"),)), say("Third.")],
    }
    project = runner.project(config, **{".claude/commands/tidy.md": "Tidy."})
    task = runner.advance(runner.task(play, project=project))
    assert [one.step.name for one in building_account_first(accounts_of([task]))] == ["two", "one", "three"]


def test_v1_a_sequence_tells_what_was_built_in_each_of_its_tasks(runner: Runner) -> None:
    project = runner.project(ONE_STEP, **{"tasks/01-a.md": "# First\n", "tasks/02-b.md": "# Second\n"})
    runner.agent = FakeAgent(lambda prompt: [say(f"Did {'first' if '# First' in prompt else 'second'}.")])
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    while due := Task.objects.due().first():
        runner.advance(due)
    sequence.refresh_from_db()
    page = str(signed_in(runner.user).get(reverse("sequence", args=[sequence.pk])).text)
    assert "Did first." in page and "Did second." in page


def test_v1_what_is_said_for_the_portal_and_what_was_decided_stand_there_once(runner: Runner) -> None:
    """The line with the decisions is no part of the message; a verdict is not told twice."""
    config = ONE_STEP + "      planApproval: true\n"
    told = "Painted.\n\n**Decisions followed:** none"
    acts = [Turn(calls=(plan("Paint."),)), Turn(calls=(plan("Paint it red."),)), say(told)]
    task = runner.advance(runner.task(acts, config=config))
    assert "Paint." in "".join(render_log(task.steps.get(), LogKind.OUTPUT)), "the plan to be approved"
    for verdict, notes in (("sent_back", "Which red?"), ("approved", "")):
        (question,) = task.questions.open()
        decide(question, verdict, by=acting(runner.user), via=Channel.WEB, notes=notes)
        task = runner.advance(task)
    assert task.phase == Phase.DONE
    assert [one.text for account in accounts_of([task]) for one in account.messages] == ["Painted."]
    page = " ".join(page_of(runner, task).split())
    assert "Decisions followed" not in page and "Decisions followed" not in pull_request_body(task)
    assert page.lower().count("sent back") == 1 and page.lower().count("approved") == 1
    log = " ".join(signed_in(runner.user).get(reverse("task_log", args=[task.pk])).text.split())
    assert "Sent back by ann" in log and "ann answered" not in log and "Sent back: Which red?" not in log


def test_v1_v7_each_question_of_a_card_stands_once_with_its_answer(runner: Runner) -> None:
    asked = (question("Which red?", "Crimson", "Rust"), question("How many coats?", "One", "Two"))
    task = runner.advance(runner.task([Turn(calls=(ask(*asked),)), say("Painted.")]))
    card = task.questions.get()
    answers = {"Which red?": "Rust", "How many coats?": "Two"}
    answer_question(card, Reply(answers, "By May."), by=acting(runner.user), via=Channel.WEB)
    task = runner.advance(task)
    for shown in (page_of(runner, task), pull_request_body(task)):
        for text in (*answers, "Rust: Rust, then.", "Two: Two, then.", "By May."):
            assert shown.count(text) == 1, text


def test_v1_after_a_review_each_step_has_only_the_changes_of_its_own_runs(runner: Runner) -> None:
    """The review goes to `implement`, and `docs` runs again after it, on what it wrote before."""
    play: dict[str, list[Act]] = {
        "plan": [Turn(calls=(write("PLAN.md", "1. Paint.\n"),)), say("I planned it.")],
        "implement": [Turn(calls=(write("paint.txt", "red\n"), write("done.txt", "x\n"))), say("Painted.")],
        "docs": [Turn(calls=(write("page.md", "1\n2\n3\n"),)), say("Documented.")],
    }
    config = STEPS.replace("docs-update\n", 'docs-update\n      fileAccess: {allowWrite: ["*.md"]}\n')
    task = runner.advance(runner.task(play, config=config))
    again: dict[str, list[Act]] = {
        "implement": [*play["implement"], Turn(calls=(write("paint.txt", "blue\n"),)), say("Blue.")],
        "docs": [Turn(calls=(write("page.md", "1\n2\n4\n"),)), say("Documented again.")],
    }
    runner.agent = FakeAgent(script(again))
    send_review(
        task, ReviewVerdict.REQUEST_CHANGES, body="Blue.", files=["paint.txt"],
        by=acting(runner.user), via=Channel.WEB,
    )  # fmt: skip
    task = runner.advance(task)
    assert task.phase == Phase.DONE, task.failure
    changes = {one.step.name: str(one.changes) for one in accounts_of([task])}
    assert changes == {
        "plan": "", "implement": "changed 2 files (+3 −1)", "docs": "changed 1 file (+4 −1)",
    }  # fmt: skip

    def names(position: int, number: int = 0) -> set[str]:
        one = task.steps.get(position=position)
        difference = difference_of(one.runs.get(number=number) if number else one)
        assert difference
        return {file.path for file in difference.files()}

    assert names(2, 1) == {"paint.txt", "done.txt"} and names(2, 2) == {"paint.txt"} == names(2)
    assert names(3, 1) == {"page.md"} and names(3, 2) == {"page.md"}
    shown = signed_in(runner.user).get(reverse("task_diff", args=[task.pk]) + "?step=2").text
    assert "All runs" not in shown and "Run 1" in shown and "done.txt" not in shown


def test_v1_the_account_of_a_run_after_a_review_goes_first(runner: Runner, manage: Manage) -> None:
    """The review went to `docs`, so what `implement` said is older than the result."""
    play: dict[str, list[Act]] = {
        "plan": [say("I planned it.")],
        "implement": [Turn(calls=(write("done.txt", "x\n"),)), say("Painted it red.")],
        "docs": [Turn(calls=(write("page.md", "1\n"),)), say("Documented."), End(), say("It says blue now.")],
    }
    task = runner.advance(runner.task(play, config=STEPS))
    assert folds(page_of(runner, task)) == ["I planned it.", "Documented."]
    assert "Painted it red." in commit_message(task)
    send_review(
        task, ReviewVerdict.REQUEST_CHANGES, body="Blue.", files=["page.md"],
        by=acting(runner.user), via=Channel.WEB,
    )  # fmt: skip
    task = runner.advance(task)
    assert [run.step.name for run in runs(task)][-1] == "docs" and task.phase == Phase.DONE
    page = page_of(runner, task)
    assert folds(page) == ["I planned it.", "Documented."]
    assert page.index("It says blue now.") < page.index("Painted it red."), "what is newer goes first"
    told = manage("status", task.pk)[1]
    assert told.index("It says blue now.") < told.index("Painted it red.")
    assert "Painted it red." not in commit_message(task)


def test_v1_a_step_that_ran_after_the_one_that_dealt_with_the_review_stays_folded(runner: Runner) -> None:
    """Its account was the newest, so it was open, and that of the rework was not."""
    play: dict[str, list[Act]] = {
        "implement": [Turn(calls=(write("done.txt", "x\n"),)), say("Painted it red.")],
        "tests": [Turn(calls=(write("t.py", "1\n"),)), say("Tested."), End(), say("It says blue now.")],
        "docs": [Turn(calls=(write("page.md", "1\n"),)), say("Documented.")],
    }
    config = STEPS.replace("implement", "tests").replace("plan-task", "plan").replace("plan", "implement")
    config = config.replace("command: tests", "command: write-tests")
    task = runner.advance(runner.task(play, config=config))
    send_review(
        task, ReviewVerdict.REQUEST_CHANGES, body="Blue.", files=["t.py"],
        by=acting(runner.user), via=Channel.WEB,
    )  # fmt: skip
    task = runner.advance(task)
    assert runs(task)[-1].step.name == "docs" and task.phase == Phase.DONE, task.failure
    page = page_of(runner, task)
    assert folds(page) == ["Documented."]
    assert page.index("It says blue now.") < page.index("Painted it red.")


def folds(page: str) -> list[str]:
    """Return which of the accounts are folded."""
    said = ("Painted it red.", "I planned it.", "Documented.", "It says blue now.")
    page = page.partition("<textarea")[0]
    return [
        one for one in said
        if page[: page.find(one)].count("<details") > page[: page.find(one)].count("</details>")
    ]  # fmt: skip


def test_a_followed_decision_that_was_replaced_since_says_by_which(runner: Runner, manage: Manage) -> None:
    task = runner.advance(runner.task([say("Painted.")]))
    old = DecisionFactory.create(project=task.project, state="superseded")
    new = DecisionFactory.create(project=task.project, replaces=old)
    DecisionEvent.objects.create(decision=old, kind=DecisionEventKind.FOLLOWED, task=task)
    assert f"superseded by {new.label}</span> now" in page_of(runner, task)
    assert f"Followed {old.label} (superseded by {new.label} now)" in manage("status", task.pk)[1]


def test_an_answer_is_told_with_what_its_option_means(runner: Runner) -> None:
    """“Half up” says nothing to somebody who saw no options."""
    free = {**ROUNDING, "question": "And negative ones?", "header": "Negative"}
    task = runner.advance(runner.task([Turn("I ask.", (ask(ROUNDING, free),)), say("Rounded.")]))
    answers = {str(ROUNDING["question"]): "Half up", str(free["question"]): "Half up, but ask me"}
    question = task.questions.get()
    answer_question(question, Reply(answers, notes="Soon"), by=acting(runner.user), via=Channel.WEB)
    task = runner.advance(task)
    for told in (page_of(runner, task), pull_request_body(task)):
        assert "Half up: As at school." in told and told.count("As at school.") == 1
        assert "Half up, but ask me" in told and "Rounding" in told and "Soon" in told
    page = signed_in(runner.user).get(reverse("task_questions", args=[task.pk])).text
    assert '<p class="asked-answer">Half up: As at school.</p>' in page


def test_v1_v7_requested_changes_stand_behind_the_answers_that_they_go_before(
    runner: Runner, spoken: Task
) -> None:
    """The result listed answers as if they held that a review had reversed."""
    thread = ThreadFactory.create(
        task=spoken, review__verdict=ReviewVerdict.REQUEST_CHANGES, review__body="Cut at words.",
        path="a.py", line=3, comments="Not at 80 characters.",
    )  # fmt: skip
    asked = page_of(runner, spoken).partition('aria-label="Requested changes"')[2]
    assert thread.review and thread.review.author.shown_name in asked and "Cut at words." in asked
    assert "a.py:3" in asked and "Not at 80 characters." in asked
    body = pull_request_body(spoken).partition("## Requested changes")[2]
    assert "Cut at words." in body and "`a.py:3` Not at 80 characters." in body


def test_v1_the_result_names_the_decisions_that_its_answers_made(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn("I ask.", (ask("Which red?"),)), say("Painted.")]))
    asked = task.questions.get()
    remember = DecisionInput(Remember(scope="project", statement="Doors are crimson."))
    reply = Reply({asked.headline: "Crimson"}, decision_input=remember)
    answer_question(asked, reply, by=acting(runner.user), via=Channel.WEB)
    task = runner.advance(task)
    made = asked.decisions.get()
    address = reverse("decision", args=[made.project_id, made.number])
    assert f'Decided as <a href="{address}"' in page_of(runner, task)


def test_v1_of_a_card_with_several_questions_the_decision_stands_behind_its_own(runner: Runner) -> None:
    other = {**ROUNDING, "question": "And negative ones?"}
    task = runner.advance(runner.task([Turn("I ask.", (ask(ROUNDING, other),)), say("Rounded.")]))
    asked, second = (str(one["question"]) for one in (ROUNDING, other))
    remembered = DecisionInput(by_item={asked: Remember(scope="project", statement="Half cents go up.")})
    reply = Reply({asked: "Half up", second: "Like the others"}, decision_input=remembered)
    answer_question(task.questions.get(), reply, by=acting(runner.user), via=Channel.WEB)
    page = page_of(runner, runner.advance(task)).partition('class="result-decisions"')[2]
    assert page.index("Half up") < page.index("Decided as") < page.index("Like the others")


def test_a_question_in_a_last_message_is_asked_or_decided_before_the_step_ends(runner: Runner) -> None:
    """Nobody would notice it in a task that is done: the agent is told so, once, in the same session."""
    task = runner.task([say("It is red.\n\nShall I paint the door, too?"), End(), say("I left the door.")])
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert (second.session_id, second.reason) == (first.session_id, Reason.UNREAD_QUESTION)
    assert runner.fake.runs[1].prompt == unread_question_feedback()
    page = page_of(runner, task)
    assert "I left the door." in page and "ends with a question" not in page


@pytest.mark.parametrize(("threshold", "count"), [(3, 2), (0, 1)])
def test_the_result_says_that_its_last_message_asks_something(
    runner: Runner, threshold: int, count: int
) -> None:
    play: list[Act] = [say("Shall I paint the door?"), End(), say("And what about the window?")]
    task = runner.advance(runner.task(play, threshold=threshold))
    assert (task.phase, len(runs(task))) == (Phase.DONE, count)
    assert "ends with a question" in page_of(runner, task)


@pytest.mark.parametrize(
    ("message", "asks"),
    [
        ("Done.\n\nShall I also do B?", True),
        ("Done. **Which one do you want?**\n", True),
        ("Shall I?\n\nDecisions followed: D-3", True),
        ("Why? Because of B.", False),
        ("What is B?\n\nIt is C.", False),
        ("Done:\n\n```\nhow?\n```", False),
        ("Done:\n\n```\nhow?", False),
        ("It prints `how?`", False),
        ("They asked:\n\n> how?", False),
        ("", False),
    ],
)
def test_a_last_message_asks_if_its_last_paragraph_does(message: str, asks: bool) -> None:
    assert asks_something(message) is asks


CHECKED_THEN_CHANGED = """\
pipelines:
  default:
    - {name: do, command: implement, check: {type: shell, command: "true"}}
    - {name: docs, command: docs-update}
"""


@pytest.mark.parametrize("changes", [True, False])
def test_the_end_says_which_checks_are_older_than_the_files(runner: Runner, changes: bool) -> None:
    docs = [Turn(calls=(write("docs.md", "More.\n"),))] if changes else []
    play = {"do": [Turn(calls=(write("a.txt", "A\n"),)), say("Done.")], "docs": [*docs, say("Described.")]}
    task = runner.advance(runner.task(play, config=CHECKED_THEN_CHANGED))
    assert task.phase == Phase.DONE
    said = phase_sentence(task)
    assert ("“do”" in said and "“docs” changed files" in said) == changes
    page = signed_in(runner.user).get(reverse("task", args=[task.pk])).text
    assert said in tidy(unescape(page))
    assert ("all checks passed" in said) != changes
    assert ("changed files after that" in pull_request_body(task)) == changes


def test_a_check_that_ran_again_after_a_review_has_seen_the_later_files(runner: Runner) -> None:
    """The step with the check stands before the one that changed files, but its check ran after that."""
    play: dict[str, list[Act]] = {
        "do": [Turn(calls=(write("a.txt", "A\n"),)), say("Done."), End(), say("Renamed.")],
        "docs": [Turn(calls=(write("docs.md", "More.\n"),)), say("Described."), End(), say("Nothing to do.")],
    }
    task = runner.advance(runner.task(play, config=CHECKED_THEN_CHANGED))
    assert "“docs” changed files" in phase_sentence(task)
    threads = [NewThread("Rename it.", "a.txt", line=1)]
    send_review(task, ReviewVerdict.REQUEST_CHANGES, by=acting(runner.user), via=Channel.WEB, threads=threads)
    task = runner.advance(task)
    assert task.phase == Phase.DONE
    assert [run.number for run in runs(task)] == [1, 2, 1, 2], "both steps ran again"
    assert "all checks passed" in phase_sentence(task)


def test_v1_a_decision_that_was_followed_and_then_found_unfit_is_told_as_unfit(
    runner: Runner, spoken: Task, manage: Manage
) -> None:
    decision = DecisionFactory.create(project=spoken.project)
    for kind in (DecisionEventKind.FOLLOWED, DecisionEventKind.UNFIT):
        DecisionEvent.objects.create(decision=decision, kind=kind, task=spoken)
    page = page_of(runner, spoken)
    assert "does not fit" in page and "Followed" not in page.partition('class="result-followed"')[2]
    status = manage("status", spoken.pk)[1]
    assert f"{decision.label} does not fit" in status and "Followed" not in status


def test_v1_a_decision_that_was_kept_after_it_was_found_unfit_says_who_kept_it(
    runner: Runner, spoken: Task, manage: Manage
) -> None:
    decision = DecisionFactory.create(project=spoken.project)
    for kind, user, note in (
        ("kept", None, ""),
        ("unfit", None, "It is slow."),
        ("kept", runner.user, "So be it."),
    ):
        DecisionEvent.objects.create(decision=decision, kind=kind, task=spoken, user=user, note=note)
    for told in (page_of(runner, spoken), manage("status", spoken.pk)[1]):
        assert f"kept by {runner.user.shown_name}: So be it." in tidy(told)
