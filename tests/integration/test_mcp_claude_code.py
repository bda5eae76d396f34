"""The Claude Code of a person against a portal in rehearsal: both are the real program (A1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks_app.models import Channel
from tasks_app.rehearsal.server import RehearsalServer
from tests.agents import OWN_SCENARIOS
from tests.claude_code import FORM, ClaudeCode, list_tools
from tests.portal import UpPortal
from tests.waiting import wait_until

ANSWER = """
from tasks_app.permissions import Principal
from tasks_app.services.questions.answers import Reply, answer_question
question = Question.objects.get(state="open")
by = Principal.unrestricted(User.objects.get(username="admin"))
answers = {item["question"]: item["options"][0]["label"] for item in question.items}
answer_question(question, Reply(answers), by=by, via=Channel.WEB)
"""


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    own = {"CATHERDER_REHEARSAL": "1", "CATHERDER_LOCAL_SANDBOXES": "allow"}
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data", **own).start()
    yield portal
    portal.stop()


@pytest.fixture
def claude(portal: UpPortal, tmp_path: Path) -> Iterator[ClaudeCode]:
    with RehearsalServer(scenarios=OWN_SCENARIOS) as model:
        program = ClaudeCode.of_admin(portal, tmp_path, model)
        yield program
        program.kill()


def choose(claude: ClaudeCode, form: str, shown: str, *keys: str) -> None:
    """Accept the form with this text: open its list, and press the keys when it shows an option."""
    claude.wait_for(form)
    claude.press("Right")
    claude.wait_for(shown)
    claude.press(*keys)
    claude.wait_for("✔ ")
    claude.accept(form)


def fill_in(claude: ClaudeCode, *, begin: int = 1) -> None:
    """Reply to the forms of the three items from this one on."""
    if begin == 1:
        choose(claude, "Question 1 of 3", "PostgreSQL: A server", "Down", "Enter")
    choose(claude, "Question 2 of 3", "JSON: For programs", "Space", "Down", "Space", "Enter")
    claude.wait_for("Question 3 of 3")
    claude.press("Down", "export it", "Enter")
    claude.wait_for("✔ Name: in your own words: export it")
    claude.accept("Question 3 of 3")


def told(claude: ClaudeCode) -> str:
    """All that its model was told."""
    return json.dumps([request["messages"] for request in claude.model.requests])


@pytest.mark.tmux
def test_a_question_comes_as_forms_and_the_result_by_itself(portal: UpPortal, claude: ClaudeCode) -> None:
    claude.start("rehearsal: herd-start")
    claude.wait_for("1 MCP task still running")
    claude.wait_for(FORM)
    fill_in(claude)
    claude.wait_for("Cat Herder says: the task has ended.")
    answers, via, program = portal.rows(
        "one = Question.objects.latest('pk')\nresult = [one.answers, one.answered_via, one.answered_with]"
    )
    assert list(answers.values()) == ["PostgreSQL", "CSV, JSON", "export it"]
    assert (via, program) == (Channel.MCP_FORM, "Claude Code")
    assert all(answer in told(claude) for answer in answers.values())


@pytest.mark.tmux
@pytest.mark.parametrize("ended", [False, True])
def test_replies_before_one_that_is_put_off_are_kept(
    portal: UpPortal, claude: ClaudeCode, ended: bool
) -> None:
    """Also if the program is killed instead; then the session that is resumed shows the form again."""
    claude.start("rehearsal: herd-start")
    choose(claude, "Question 1 of 3", "PostgreSQL: A server", "Down", "Enter")
    claude.wait_for("Question 2 of 3")
    if ended:
        claude.kill()
    else:
        claude.press("Escape")
        claude.wait_for("needs your input")
    kept, is_open = portal.rows(
        "one = Question.objects.latest('pk')\nresult = [one.drafts.get().answers, one.is_open]"
    )
    assert (kept, is_open) == ({"Which database?": "PostgreSQL"}, True)
    if ended:
        claude.start()
    else:
        claude.open_form()
    fill_in(claude, begin=2)
    wait_until(lambda: portal.rows("result = Task.objects.latest('pk').is_ended"))
    answers = portal.rows("result = Question.objects.latest('pk').answers")
    assert list(answers.values()) == ["PostgreSQL", "CSV, JSON", "export it"]


@pytest.mark.tmux
def test_more_items_than_the_program_shows_forms_are_answered_in_forms(tmp_path: Path) -> None:
    """It shows 16 forms of one task. Each item of the first two cards is one, then each card."""
    ways = [{"label": "Left", "description": "Shorter."}, {"label": "Right", "description": "Safer."}]
    cards = [[f"{card}{item}" for item in "1234"] for card in "ABCD"] + [["E1"]]
    turns: list[dict[str, Any]] = []
    for card in cards:
        questions = [
            {"question": f"Which way at {one}?", "header": one, "multiSelect": False, "options": ways}
            for one in card
        ]
        turns.append({"tools": [{"name": "AskUserQuestion", "input": {"questions": questions}}]})
    starts = (OWN_SCENARIOS / "herd-start.yaml").read_text()
    (tmp_path / "herd-start.yaml").write_text(starts.replace("ask-multi", "ask-often"))
    often = {"name": "ask-often", "about": "Asks often.", "turns": [*turns, {"text": "The end."}]}
    (tmp_path / "ask-often.yaml").write_text(json.dumps(often))
    with RehearsalServer(scenarios=tmp_path) as model:
        own = {"ANTHROPIC_API_KEY": "sk-ant-scripted", "ANTHROPIC_BASE_URL": model.url}
        portal = UpPortal.migrated(tmp_path / "data", CATHERDER_LOCAL_SANDBOXES="allow", **own).start()
        claude = ClaudeCode.of_admin(portal, tmp_path / "terminal", model)
        try:
            claude.start("rehearsal: herd-start")
            for one in [*cards[0], *cards[1]]:
                choose(claude, f"of 4: {one}: Which way at {one}?", "Left: Shorter.", "Enter")
            for first, *others in cards[2:]:
                claude.wait_for(f"{first}: Which way at {first}?")
                for _ in [first, *others]:
                    claude.press("Right")
                    claude.wait_for("◯ Left: Shorter.")
                    claude.press("Enter", "Down")
                claude.accept(f"{first}: Which way at {first}?")
            claude.wait_for("Cat Herder says: the task has ended.")
            answers = portal.rows("result = [one.answers for one in Question.objects.order_by('pk')]")
            assert [len(one) for one in answers] == [4, 4, 4, 4, 1]
            assert {answer for one in answers for answer in one.values()} == {"Left"}
        finally:
            claude.kill()
            portal.stop()


@pytest.mark.tmux
def test_a_question_of_a_task_that_it_does_not_follow_comes_as_forms_too(
    portal: UpPortal, tmp_path: Path
) -> None:
    """With the tool `answer`, whose forms come one after the other in its own call."""
    task = portal.new_task("# Name the export\n\nrehearsal: ask-multi")
    wait_until(lambda: portal.rows(f"result = Question.objects.filter(task={task}).exists()"))
    question = portal.rows(f"result = Question.objects.get(task={task}).pk")
    calls = [{"name": "mcp__cat-herder__answer", "input": {"question_id": question}}]
    turns = [{"delay": 10, "tools": calls}, {"text": "You have answered: {{result}}"}]
    asked = {"name": "herd-answer", "about": "The person asks for a form.", "turns": turns}
    (tmp_path / "herd-answer.yaml").write_text(json.dumps(asked))
    with RehearsalServer(scenarios=tmp_path) as model:
        claude = ClaudeCode.of_admin(portal, tmp_path / "terminal", model)
        try:
            claude.start("rehearsal: herd-answer")
            fill_in(claude)
            claude.wait_for("You have answered")
        finally:
            claude.kill()
    answers, via = portal.rows(
        f"one = Question.objects.get(pk={question})\nresult = [one.answers, one.answered_via]"
    )
    assert (list(answers.values()), via) == (["PostgreSQL", "CSV, JSON", "export it"], Channel.MCP_FORM)


@pytest.mark.tmux
def test_who_answers_later_may_answer_in_the_web_and_the_form_goes_away(
    portal: UpPortal, claude: ClaudeCode
) -> None:
    claude.start("rehearsal: herd-start")
    claude.wait_for(FORM)
    claude.press("Escape")
    claude.wait_for("needs your input")
    portal.rows(ANSWER)
    claude.wait_for("Cat Herder says: the task has ended.")
    assert "needs your input" not in claude.screen() and FORM not in claude.screen()


@pytest.mark.tmux
def test_who_replies_to_a_form_after_the_web_is_told_whose_answer_counts(
    portal: UpPortal, claude: ClaudeCode
) -> None:
    """An open form stays, because the program does not ask again meanwhile, and it hides the refusal."""
    claude.start("rehearsal: herd-start")
    claude.wait_for(FORM)
    portal.rows(ANSWER)
    wait_until(lambda: portal.rows("result = Task.objects.latest('pk').is_ended"))
    assert FORM in claude.screen()
    choose(claude, "Question 1 of 3", "PostgreSQL: A server", "Down", "Enter")
    claude.wait_for("Cat Herder says: the task has ended.")
    (via, name) = portal.rows(
        "one = Question.objects.latest('pk')\nresult = [one.answered_via, one.answerer]"
    )
    assert via == Channel.WEB
    assert f"Answered by {name} at" in told(claude)


@pytest.mark.tmux
@pytest.mark.parametrize("by", ["form", "web"])
def test_a_question_and_its_form_outlive_a_restart_of_the_portal(
    portal: UpPortal, claude: ClaudeCode, by: str
) -> None:
    """The form is open meanwhile if it is answered there, and put off if the page answers."""
    claude.start("rehearsal: herd-start")
    claude.wait_for(FORM)
    if by == "web":
        claude.press("Escape")
        claude.wait_for("needs your input")
    with claude.asleep():
        portal.stop()
        portal.start()
        list_tools(portal, claude.token)
    if by == "web":
        portal.rows(ANSWER)
    else:
        fill_in(claude)
    claude.wait_for("Cat Herder says: the task has ended.")
    assert "Answered by" in told(claude)


def test_without_a_terminal_it_uses_the_plain_tools(portal: UpPortal, claude: ClaudeCode) -> None:
    assert "It is under way." in claude.print("rehearsal: herd-look")
    assert "Look around" in told(claude) and "Unsupported result type" not in told(claude)
    assert portal.rows("result = Task.objects.filter(title='Look around').count()") == 1
