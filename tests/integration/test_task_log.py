"""The log of a task in parts of a fixed size, however long it is, and the ways to a place in it (W2, W3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.history.events.reading import Events, events_with
from tasks_app.models import Event, EventKind, ReviewVerdict, Run, Task
from tasks_app.services.review_threads import AgentReply, store_agent_replies
from tasks_app.web.rendering.log_entries import event_summary
from tasks_app.web.tasks.log import PAGE
from tests.browser import signed_in
from tests.factories import (
    QuestionFactory,
    ReviewFactory,
    RunFactory,
    TaskFactory,
    ThreadFactory,
    UserFactory,
)
from tests.markup import tidy

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def browser() -> Client:
    return signed_in(UserFactory.create(is_superuser=True))


def say(run: Run, *events: tuple[EventKind, dict[str, Any]]) -> list[int]:
    """The numbers of the events."""
    last = Event.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    append(run, [NewEvent(kind, payload, raw=payload) for kind, payload in events], seq=run.next_seq())
    return list(Event.objects.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True))


def lines(run: Run, *numbers: int) -> list[int]:
    return say(run, *((EventKind.TEXT, {"text": f"line {number}."}) for number in numbers))


def part(browser: Client, task: Task, **query: str | int) -> str:
    answer = browser.get(reverse("task_log", args=[task.pk]), query, headers=HTMX)
    assert answer.status_code == 200 and "<html" not in answer.text
    return str(answer.text)


def shown(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"line (\d+)\.", text)]


def facts(text: str) -> dict[str, str]:
    opening = re.search(r'<ol class="entries part"([^>]*)>', text)
    assert opening
    return dict(re.findall(r'data-(\w+)="([^"]*)"', opening[1]))


def test_the_page_has_the_end_of_the_log(browser: Client) -> None:
    run = RunFactory.create()
    lines(run, *range(450))
    page = browser.get(reverse("task", args=[run.step.task_id])).text
    assert shown(page) == list(range(350, 450))
    assert facts(page)["earlier"] == "yes" and "later" not in facts(page)


def test_earlier_and_later_parts_fit_together(browser: Client) -> None:
    run = RunFactory.create()
    task = run.step.task
    lines(run, *range(250))
    end = part(browser, task)
    middle = part(browser, task, before=facts(end)["first"])
    beginning = part(browser, task, before=facts(middle)["first"])
    assert shown(beginning) + shown(middle) + shown(end) == list(range(250))
    assert "earlier" not in facts(beginning) and facts(middle)["later"] == "yes"
    again = part(browser, task, after=facts(beginning)["last"])
    assert shown(again) == shown(part(browser, task, after=facts(beginning)["last"])) == list(range(50, 150))


@pytest.mark.both
def test_new_events_come_once_and_in_order(browser: Client) -> None:
    run = RunFactory.create()
    task = run.step.task
    (last,) = lines(run, 1)
    address = reverse("task_log", args=[task.pk])
    assert browser.get(address, {"after": last}, headers=HTMX).status_code == 204
    numbers = lines(run, 2, 3)
    text = part(browser, task, after=last)
    assert shown(text) == [2, 3] and "run-start" not in text
    assert facts(text)["last"] == str(numbers[-1]) and "later" not in facts(text)


def test_a_browser_that_slept_catches_up_in_portions(browser: Client) -> None:
    run = RunFactory.create()
    lines(run, *range(350))
    text = part(browser, run.step.task, after=0)
    assert shown(text) == list(range(PAGE)) and facts(text)["later"] == "yes"


def test_a_link_leads_to_an_event_and_what_is_around_it(browser: Client) -> None:
    run = RunFactory.create()
    numbers = lines(run, *range(300))
    text = part(browser, run.step.task, around=numbers[150])
    assert shown(text) == list(range(100, 200))
    assert facts(text)["target"] == f"event-{numbers[150]}"
    assert (facts(text)["earlier"], facts(text)["later"]) == ("yes", "yes")
    beyond = part(browser, run.step.task, around=numbers[-1] + 100)
    assert facts(beyond)["target"] == f"event-{numbers[-1]}"


def test_a_link_leads_to_a_run(browser: Client) -> None:
    run = RunFactory.create()
    lines(run, *range(150))
    again = RunFactory.create(step=run.step, number=2, reason="answer")
    (first, *_) = lines(again, *range(1000, 1150))
    text = part(browser, run.step.task, run=again.pk)
    assert facts(text)["target"] == f"event-{first}"
    assert "run 2, resumed with an answer" in text and 1000 in shown(text)
    stranger = RunFactory.create()
    address = reverse("task_log", args=[run.step.task_id])
    assert browser.get(address, {"run": stranger.pk}, headers=HTMX).status_code == 404


FAILURES = [
    (EventKind.ERROR, {"text": "No luck."}),
    (EventKind.CHECK, {"check": "make test", "passed": False, "output": "", "exit_code": 1}),
    (EventKind.TOOL_RESULT, {"tool_use_id": "x", "text": "Exit code 1", "is_error": True}),
    (EventKind.RESULT, {"subtype": "error", "is_error": True, "text": "API Error"}),
]


@pytest.mark.parametrize("failure", FAILURES, ids=[kind for kind, _ in FAILURES])
def test_the_next_failure_is_found_wherever_it_is(
    browser: Client, failure: tuple[EventKind, dict[str, Any]]
) -> None:
    run = RunFactory.create()
    task = run.step.task
    address = reverse("task_log", args=[task.pk])
    lines(run, *range(150))
    say(run, (EventKind.CHECK, {"check": "make lint", "passed": True, "output": ""}))
    assert browser.get(address, {"error": 0}, headers=HTMX).status_code == 204
    (first,) = say(run, failure)
    lines(run, *range(150))
    (second,) = say(run, failure)
    lines(run, *range(150))
    found = [facts(part(browser, task, error=number))["target"] for number in (0, first, second)]
    assert found == [f"event-{first}", f"event-{second}", f"event-{first}"], (
        "the last is followed by the first"
    )


def test_a_question_shows_every_part(browser: Client) -> None:
    run = RunFactory.create()
    items = [{"question": f"{name}?\n\nWith context."} for name in ("<Colour>", "`Size`", "Shape")]
    (asked,) = say(run, (EventKind.QUESTION, {"number": 1, "question": "<Colour>?", "items": items}))
    text = re.sub(r">\s+<", "><", part(browser, run.step.task))
    for whole in ("&lt;Colour&gt;?", "<code>Size</code>?", "Shape?"):
        rest = text.partition(f'<li><p class="said">{whole}</p>')[2]
        assert "With context." in rest.partition("</li>")[0], "nothing is cut"
    assert event_summary(Event.objects.get(pk=asked)) == "<Colour>? and 2 more"
    (cut, long) = say(
        run, (EventKind.TEXT, {"text": "I do:\n\n1. This."}), (EventKind.TEXT, {"text": "word " * 90})
    )
    assert event_summary(Event.objects.get(pk=cut)) == "I do: …"
    assert event_summary(Event.objects.get(pk=long)).endswith("word …"), "no word is cut"


def test_what_a_human_turned_down_is_no_failure(browser: Client) -> None:
    run = RunFactory.create()
    call = {"id": "p", "name": "ExitPlanMode", "input": {"plan": "# One"}}
    told = "Ann sent the plan back: Smaller steps."
    result = {"tool_use_id": "p", "text": told, "is_error": True, "turned_down": "sent back by Ann"}
    say(run, (EventKind.TOOL_USE, call), (EventKind.TOOL_RESULT, result))
    text = part(browser, run.step.task)
    assert '<span class="call-outcome">sent back by Ann</span>' in text and told in text
    assert "entry-failed" not in text
    assert "ExitPlanMode" not in part(browser, run.step.task, only="errors")
    address = reverse("task_log", args=[run.step.task_id])
    assert browser.get(address, {"error": 0}, headers=HTMX).status_code == 204


def test_w2_a_refused_call_says_so(browser: Client) -> None:
    run = RunFactory.create()
    call = {"id": "c", "name": "Bash", "input": {"command": "git push"}}
    told = "PreToolUse:Bash hook error: This call was not made."
    result = {"tool_use_id": "c", "text": told, "is_error": True}
    say(run, (EventKind.TOOL_USE, call), (EventKind.TOOL_RESULT, result))
    text = part(browser, run.step.task)
    assert '<span class="call-outcome">refused</span>' in text
    assert "This call was not made." in text and "hook error" not in text, "who refused it is no name of ours"


def test_w2_a_result_names_its_call_if_that_is_in_an_earlier_part(browser: Client) -> None:
    run = RunFactory.create()
    call = {"id": "c", "name": "Bash", "input": {"command": "make all-of-it"}}
    result = {"tool_use_id": "c", "text": "made", "is_error": False}
    say(run, (EventKind.TOOL_USE, call), (EventKind.TOOL_RESULT, result))
    numbers = lines(run, *range(PAGE - 1))
    text = part(browser, run.step.task)
    assert 'class="result-of"' in text and ">$ make all-of-it<" in text and "data-call=" not in text
    assert "result-of" not in part(browser, run.step.task, after=numbers[0]), "the page has it"


def test_w2_each_answer_of_a_card_stands_by_itself(browser: Client) -> None:
    run = RunFactory.create()
    pairs = [["Reasons. Which red?", "Crimson"], ["How many?", "Two"]]
    say(run, (EventKind.ANSWER, {"text": "a", "answers": pairs, "by": "ann", "via": "web", "number": 1}))
    text = part(browser, run.step.task)
    found = re.findall(r"<d[td][^>]*>([^<]*)<", text)
    assert found == ["… Which red?", "Crimson", "How many?", "Two"]


def test_w2_a_run_after_a_review_begins_with_the_review(browser: Client) -> None:
    run = RunFactory.create(reason="review")
    facts: dict[str, Any] = {"verdict": ReviewVerdict.REQUEST_CHANGES, "body": "Why blue?"}
    review = ReviewFactory.create(task=run.step.task, handed_in=run, **facts)
    place: dict[str, Any] = {"path": "paint.txt", "line": 3, "comments": "Make it red."}
    ThreadFactory.create(task=run.step.task, review=review, **place)
    lines(run, 1)
    text = part(browser, run.step.task)
    places = [text.index(words) for words in ("Why blue?", "paint.txt:3", "Make it red.", "line 1.")]
    assert places == sorted(places)


def test_a_log_can_be_narrowed(browser: Client) -> None:
    run = RunFactory.create()
    call = {"id": "a", "name": "Bash", "input": {"command": "make test"}}
    say(run, (EventKind.TEXT, {"text": "hello"}), (EventKind.TOOL_USE, call))
    lines(run, *range(150))
    say(run, (EventKind.TOOL_RESULT, {"tool_use_id": "a", "text": "Exit code 2\nno rule", "is_error": True}))

    def kinds(only: str) -> set[str]:
        text = part(browser, run.step.task, only=only)
        return set(re.findall(r'class="entry entry-(\w+)', text))

    assert kinds("text") == {"text"}
    assert kinds("tools") == kinds("errors") == {"tool_use"}, "a result stands with its call"
    assert "→" not in part(browser, run.step.task, only="errors") and "exit 2" in part(
        browser, run.step.task, only="errors"
    )
    address = reverse("task_log", args=[run.step.task_id])
    assert browser.get(address, {"only": "nonsense"}).status_code == 404


@pytest.mark.parametrize(
    "query", ["after=x", "before=-1", "after=", "around=x", "error=-1", "run=9" + "9" * 30]
)
def test_a_bad_place_in_the_log_is_404(browser: Client, query: str) -> None:
    assert browser.get(f"{reverse('task_log', args=[TaskFactory.create().pk])}?{query}").status_code == 404


def test_without_scripts_the_log_has_pages(browser: Client) -> None:
    run = RunFactory.create()
    lines(run, *range(300))
    page = browser.get(reverse("task_log", args=[run.step.task_id])).text
    assert "<html" in page and shown(page) == list(range(200, 300))
    earlier = re.search(r'href="([^"]*\?before=\d+[^"]*)">Load earlier', page)
    assert earlier
    before = browser.get(earlier[1].replace("&amp;", "&")).text
    assert shown(before) == list(range(100, 200)) and "Load later entries" in before


# ---- bounds ----


@pytest.mark.parametrize("length", [10_000, 50_000])
def test_the_cost_of_a_part_does_not_grow_with_the_log(browser: Client, length: int) -> None:
    """Rows, queries and bytes are those of one part, wherever in the log it is."""
    run = RunFactory.create()
    task = run.step.task
    text = {"text": "A sentence of the usual length, with `code` and **stress**."}
    numbers = []
    for begin in range(0, length, 10_000):
        append(run, [NewEvent(EventKind.TEXT, text)] * 10_000, seq=begin)
    first = Event.objects.order_by("pk").values_list("pk", flat=True)[0]
    numbers = [first, first + length // 2, first + length - 1]
    address = reverse("task_log", args=[task.pk])
    costs = set()
    for number in numbers:
        with CaptureQueriesContext(connection) as captured:
            answer = browser.get(address, {"around": number}, headers=HTMX)
        costs.add(len(captured))
        assert answer.text.count('class="entry ') <= PAGE and len(answer.content) < 60_000
    assert costs == {6}, "session, person, task, runs, before, after"
    page = browser.get(reverse("task", args=[task.pk]))
    assert page.text.count('class="entry ') == PAGE and len(page.content) < 100_000


HUGE = "word " * 200_000


def test_huge_entries_are_fetched_when_they_are_wanted(browser: Client) -> None:
    run = RunFactory.create()
    edit = {"file_path": "a.py", "old_string": "", "new_string": HUGE.replace(" ", "\n")}
    events: list[tuple[EventKind, dict[str, Any]]] = [
        *((EventKind(kind), {"text": HUGE}) for kind in ("text", "thinking", "note", "error", "answer")),
        (EventKind.TOOL_USE, {"id": "a", "name": "Bash", "input": {"command": HUGE}}),
        (EventKind.TOOL_USE, {"id": "b", "name": "Edit", "input": edit}),
        (EventKind.TOOL_RESULT, {"tool_use_id": "c", "text": HUGE}),
        (EventKind.CHECK, {"check": "make", "passed": False, "output": HUGE}),
        (EventKind.QUESTION, {"question": HUGE, "number": 1}),
    ]
    numbers = say(run, *events)
    text = part(browser, run.step.task)
    assert len(text) < 80_000
    for number in numbers[:-1]:
        address = reverse("task_event", args=[run.step.task_id, number])
        assert address in text
        whole = browser.get(address, headers=HTMX)
        assert "<html" not in whole.text and 30_000 < len(whole.text) < 1_500_000
        assert "<html" in browser.get(address).text


def test_an_event_of_another_task_is_404(browser: Client) -> None:
    run, other = RunFactory.create(), RunFactory.create()
    (number,) = lines(other, 1)
    assert browser.get(reverse("task_event", args=[run.step.task_id, number])).status_code == 404


# ---- one line for each call ----


def test_a_call_says_in_its_line_what_it_did_and_how_it_came_out(browser: Client) -> None:
    run = RunFactory.create()
    edit = {"file_path": "src/money.py", "old_string": "a\nb\nc\n", "new_string": "a\nB\nc\nd\ne\n"}
    say(
        run,
        (EventKind.TOOL_USE, {"id": "1", "name": "Edit", "input": edit}),
        (EventKind.TOOL_RESULT, {"tool_use_id": "1", "text": "done"}),
        (EventKind.TOOL_USE, {"id": "2", "name": "Bash", "input": {"command": "npm test"}}),
        (EventKind.TOOL_RESULT, {"tool_use_id": "2", "text": "Exit code 1\n3 failed", "is_error": True}),
        (EventKind.TOOL_USE, {"id": "3", "name": "Read", "input": {"file_path": "a.py"}}),
        (EventKind.TOOL_RESULT, {"tool_use_id": "3", "text": "x\n" * 40}),
    )
    summaries = re.findall(r"<summary>(.*?)</summary>", part(browser, run.step.task), re.S)
    plain = [" ".join(re.sub(r"<[^>]+>", " ", text).split()) for text in summaries]
    assert [text for text in plain if "output" not in text] == [
        "Edit src/money.py +3 −1",
        "$ npm test exit 1",
        "Read a.py 40 lines",
    ]


def found(browser: Client, task: Task, words: str, **query: str | int) -> list[str]:
    """The event that was found, and which of how many it is."""
    known = facts(part(browser, task, find=words, **query))
    return [known["target"], known["place"], known["total"]]


@pytest.mark.both
def test_words_are_found_one_after_the_other_and_round_the_end(browser: Client) -> None:
    """W2: whatever its kind and its case, and however far away it is."""
    run = RunFactory.create()
    task = run.step.task
    lines(run, *range(150))
    call: dict[str, Any] = {"id": "needle-1", "name": "Bash", "input": {"command": "grep Needle *"}}
    one, two, three = say(
        run,
        (EventKind.TEXT, {"text": "A NEEDLE."}),
        (EventKind.TOOL_USE, call),
        (EventKind.TOOL_RESULT, {"tool_use_id": "needle-1", "text": "the needle\nis here"}),
    )
    lines(run, *range(150, 300))
    assert found(browser, task, "needle") == [f"event-{one}", "1", "3"]
    assert found(browser, task, "needle", after=one) == [f"event-{two}", "2", "3"]
    assert found(browser, task, "needle", after=three) == [f"event-{one}", "1", "3"]
    assert found(browser, task, "needle", before=three) == [f"event-{two}", "2", "3"]
    assert found(browser, task, "needle", before=one) == [f"event-{three}", "3", "3"]
    assert found(browser, task, "needle", only="text") == [f"event-{one}", "1", "1"]


@pytest.mark.parametrize(
    "words", ["naïve “Café”", "NAÏVE", 'say "hi"', "C:\\new", "100%_sure", "☃", "two\nlines"]
)
@pytest.mark.both
def test_any_characters_are_found(browser: Client, words: str) -> None:
    run = RunFactory.create()
    text = 'A naïve “Café”: say "hi" to C:\\new, 100%_sure ☃ two\nlines.'
    say(run, (EventKind.TEXT, {"text": "100 percent sure, two lines, naive cafe"}))
    (wanted,) = say(run, (EventKind.TEXT, {"text": text}))
    assert found(browser, run.step.task, words) == [f"event-{wanted}", "1", "1"]


@pytest.mark.parametrize("words", ["absent", "tool_use_id", "text", "toolu_17", "%", "\\u2603"])
@pytest.mark.both
def test_what_no_reader_sees_is_not_found(browser: Client, words: str) -> None:
    run = RunFactory.create()
    say(run, (EventKind.TOOL_RESULT, {"tool_use_id": "toolu_17", "text": "☃"}))
    address = reverse("task_log", args=[run.step.task_id])
    assert browser.get(address, {"find": words}, headers=HTMX).status_code == 204
    assert f"No entries contain “{words}”" in browser.get(address, {"find": words}).text


def test_many_finds_are_counted_up_to_a_bound(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks_app.web.tasks.log.MOST_FOUND", 3)
    run = RunFactory.create()
    numbers = lines(run, *range(6))
    assert found(browser, run.step.task, "line", after=numbers[1]) == [f"event-{numbers[2]}", "3", "3"]
    assert found(browser, run.step.task, "line", after=numbers[3]) == [f"event-{numbers[4]}", "0", "3"]
    assert found(browser, run.step.task, "line", after=numbers[5]) == [f"event-{numbers[0]}", "1", "3"]
    assert found(browser, run.step.task, "line", before=numbers[5]) == [f"event-{numbers[4]}", "0", "3"]
    assert found(browser, run.step.task, "line", before=numbers[2]) == [f"event-{numbers[1]}", "2", "3"]
    assert found(browser, run.step.task, "line", before=numbers[0]) == [f"event-{numbers[5]}", "0", "3"]


@pytest.mark.both
def test_a_search_reads_the_log_once(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFactory.create()
    numbers = lines(run, *range(6))
    read: list[str] = []

    def counted(events: Events, words: str) -> Iterator[int]:
        read.append(words)
        return events_with(events, words)

    monkeypatch.setattr("tasks_app.web.tasks.log.events_with", counted)
    for near in ({"after": numbers[1]}, {"before": numbers[1]}, {"after": numbers[5]}):
        found(browser, run.step.task, "line", **near)
    address = reverse("task_log", args=[run.step.task_id])
    assert browser.get(address, {"find": "absent"}, headers=HTMX).status_code == 204
    assert read == ["line"] * 3 + ["absent"]


def test_the_beginning_and_how_far_down_a_part_is(browser: Client) -> None:
    task = TaskFactory.create()
    for number in (1, 2):
        lines(RunFactory.create(task=task, number=number), *range(100 * number, 100 * number + 100))
    begin, end = facts(part(browser, task, beginning="")), facts(part(browser, task))
    assert [begin["begins"], begin["ends"], end["begins"], end["ends"]] == ["0", "50", "50", "100"]
    assert "earlier" not in begin and begin["later"] == "yes"


@pytest.mark.both
def test_a_request_for_changes_stands_at_the_end_of_the_log_at_once(browser: Client) -> None:
    """Before the run that it begins has its first event, and once afterwards, in front of that run."""
    run = RunFactory.create()
    task = run.step.task
    (last,) = lines(run, 1)
    review = ReviewFactory.create(
        task=task, number=1, body="Make it blue.", verdict=ReviewVerdict.REQUEST_CHANGES
    )
    ReviewFactory.create(task=task, number=2, body="Nice.", verdict=ReviewVerdict.COMMENT)
    page = browser.get(reverse("task", args=[task.pk])).text
    assert page.index("line 1.") < page.index("Make it blue.") and page.count("Make it blue.") == 1
    assert "Nice." not in page[page.index("log-box") :]
    tail = part(browser, task, remarks="")
    assert f'data-remark="review-{review.pk}"' in tail and "line 1." not in tail
    again = RunFactory.create(step=run.step, number=2, reason="review")
    lines(again, 2)
    new = part(browser, task, after=last)
    assert new.index("Make it blue.") < new.index("</span> run 2, after a review") < new.index("line 2.")
    assert part(browser, task).count("Make it blue.") == 1
    assert "Make it blue." not in part(browser, task, remarks="")


def test_what_the_agent_replies_in_a_thread_stands_in_the_logs(browser: Client) -> None:
    run = RunFactory.create()
    task = run.step.task
    review = ReviewFactory.create(task=task, verdict=ReviewVerdict.REQUEST_CHANGES)
    ThreadFactory.create(task=task, review=review, path="paint.txt", line=3)
    again = RunFactory.create(step=run.step, number=2, reason="review")
    lines(again, 1)
    store_agent_replies(again, [AgentReply(1, "It is blue now.", "1")])
    lines(again, 2)
    shown_part = part(browser, task)
    assert shown_part.index("line 1.") < shown_part.index("It is blue now.") < shown_part.index("line 2.")
    assert "paint.txt:3" in shown_part
    log = "".join(render_log(again.step, LogKind.OUTPUT))
    assert log.count("[REPLY] In thread 1 (paint.txt:3):\n    It is blue now.\n") == 1


def test_a_run_that_begins_with_the_result_of_an_earlier_call_has_its_heading(browser: Client) -> None:
    """The result of a question's call comes in the run after the answer."""
    run = RunFactory.create()
    task = run.step.task
    call = {"id": "call-1", "name": "AskUserQuestion", "input": {}}
    result = {"tool_use_id": "call-1", "text": "Blue"}
    say(run, (EventKind.TOOL_USE, call))
    again = RunFactory.create(step=run.step, number=2, reason="answer")
    (answered,) = say(again, (EventKind.TOOL_RESULT, result))
    assert tidy(part(browser, task)).count("run 2, resumed with an answer</li>") == 1
    lines(again, 1)
    assert tidy(part(browser, task)).count("run 2, resumed with an answer</li>") == 1
    assert "run-start" not in part(browser, task, after=answered)


@pytest.mark.parametrize(
    ("state", "names", "label"),
    [
        ("answered", ["ann"], "resumed with ann’s answer"),
        ("answered", ["ann", "bob", "ann"], "resumed with the answers of ann and bob"),
        ("dismissed", ["ann"], "resumed after ann skipped the question"),
        ("answered", [], "resumed with an answer"),
    ],
)
def test_q2_all_who_look_read_who_answered(browser: Client, state: str, names: list[str], label: str) -> None:
    run = RunFactory.create()
    again = RunFactory.create(step=run.step, number=2, reason="answer")
    people = {name: UserFactory.create(username=name) for name in dict.fromkeys(names)}
    for number, name in enumerate(names, 1):
        QuestionFactory.create(
            task=run.step.task, run=run, number=number, state=state, answered_at=timezone.now(),
            answered_by=people[name], handed_in=again,
        )  # fmt: skip
    lines(run, 1)
    lines(again, 2)
    assert f"run 2, {label}" in part(browser, run.step.task)
    assert label in browser.get(reverse("task", args=[run.step.task_id])).text
    assert f"Run:        2, {label}\n" in "".join(render_log(run.step, LogKind.OUTPUT))
