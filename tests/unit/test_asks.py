"""From a tool call to an ask, and from a human's answer to that call's result (H3, H5, H7, R1, R4)."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.approvals import approval_of
from tasks_app.agent.call_permissions import (
    INLINE_HEAD,
    INLINE_LIMIT,
    AnswersFolder,
    GivenAnswer,
    permission_for,
)
from tasks_app.agent.questions import ask_from_call
from tasks_app.core.types import Ask, AskItem, Option

HARD = [
    "@/etc/passwd",
    "/clear",
    '"; rm -rf / #',
    "$(touch hacked) `touch hacked` $HOME",
    "'single' \"double\" \\back\\slash \\n",
    "-n",
    "--help",
    "%s %d %%",
    "one\ntwo\n\n  three\n",
    "\ttab and trailing space ",
    "naïve ☃ 猫 👩‍👩‍👧 \u2028 \u202e",
    "EOF",
    "",
]
COMMAND = {"command": 'cat-herder ask "Which?"', "description": "Ask"}


def item(question: str, *, multi: bool = False) -> dict[str, Any]:
    options = [
        {"label": "Red", "description": "like roses"},
        {"label": "Blue", "description": "", "preview": "#00f"},
    ]
    return {"question": question, "header": "Colour", "options": options, "multiSelect": multi}


def asked(*items: dict[str, Any]) -> Ask:
    ask = ask_from_call("toolu_1", "AskUserQuestion", {"questions": list(items)})
    assert ask is not None
    return ask


def commanded(command: str = COMMAND["command"], **more: Any) -> Ask:
    ask = ask_from_call("toolu_2", "Bash", {**COMMAND, **more, "command": command})
    assert ask is not None
    return ask


def answered(ask: Ask, *answers: str, notes: str = "") -> GivenAnswer:
    questions = [item.question for item in ask.items]
    return GivenAnswer(ask, dict(zip(questions, answers, strict=True)), notes)


def printed(given: GivenAnswer, *others: GivenAnswer, folder: Path) -> str:
    """What the agent's Bash shows for the command that takes the place of the one that asked."""
    permission = permission_for(given, others, folder=AnswersFolder(folder))
    assert permission.allow and permission.updated_input is not None
    command = str(permission.updated_input["command"])
    empty = folder / "empty"
    empty.mkdir()
    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=empty, check=True)
    assert not done.stderr and not list(empty.iterdir())
    return done.stdout.decode()


class TestAsksInCalls:
    def test_a_question_with_options(self) -> None:
        ask = asked(item("Which?", multi=True))
        options = (Option("Red", "like roses"), Option("Blue", "", "#00f"))
        assert (ask.tool_use_id, ask.way) == ("toolu_1", "AskUserQuestion")
        assert ask.items == (AskItem("Which?", "Colour", options, multi_select=True),)
        assert ask.tool_input == {"questions": [item("Which?", multi=True)]}

    def test_several_questions_are_items_of_one_ask(self) -> None:
        assert [each.question for each in asked(item("A?"), item("B?")).items] == ["A?", "B?"]

    def test_a_command_that_asks_twice_is_one_ask_with_two_items(self) -> None:
        ask = commanded('cat-herder ask "A?"; cat-herder ask "B?"; cat-herder ask "A?"')
        assert ask.way == "command"
        assert ask.items == (AskItem("A?"), AskItem("B?"))

    @pytest.mark.parametrize(
        ("name", "tool_input"),
        [("Bash", {"command": "ls"}), ("Bash", {}), ("Read", {"command": 'cat-herder ask "A?"'}), ("", {})],
    )
    def test_other_calls_ask_nothing(self, name: str, tool_input: dict[str, Any]) -> None:
        assert ask_from_call("toolu_1", name, tool_input) is None

    @pytest.mark.parametrize(
        "tool_input",
        [
            {},
            {"questions": None},
            {"questions": "Which?"},
            {"questions": []},
            {"questions": ["Which?"]},
            {"question": "Größe?"},
            {"questions": [{}]},
            {"questions": [{"question": None, "header": "Colour", "options": []}]},
            {"questions": [7, {"question": "A?", "options": []}]},
            {"questions": [{"question": 7, "options": []}]},
            {"questions": [{"question": "A?", "options": "red or blue"}]},
            {"questions": [{"question": "A?", "options": ["red", "blue"]}]},
            {"questions": [item("")]},
            {"questions": [item(" \n")]},
            {"questions": [item("A?"), item("A? ")]},
            {"questions": [{"question": "A?", "options": [{"label": "Red"}, {"label": " "}]}]},
            {"questions": [{"question": "A?", "options": [{"label": "Red"}, {"label": "Red "}]}]},
        ],
    )
    def test_what_is_not_the_agents_own_question_is_not_asked(self, tool_input: dict[str, Any]) -> None:
        """H3: its program or the gate has rejected it, and the agent asks anew."""
        assert ask_from_call("toolu_1", "AskUserQuestion", tool_input) is None

    @pytest.mark.parametrize("value", [None, "true", 1, "no"])
    def test_only_true_allows_several_choices(self, value: Any) -> None:
        assert asked({"question": "A?", "multiSelect": value}).items[0].multi_select is False


class TestAnswersToTheTool:
    @pytest.mark.parametrize("answer", HARD)
    def test_the_answer_stands_beside_the_questions_to_the_letter(self, answer: str, tmp_path: Path) -> None:
        ask = asked(item("Which?"))
        permission = permission_for(answered(ask, answer), (), folder=AnswersFolder(tmp_path))
        assert permission.allow
        assert permission.updated_input == {"questions": [item("Which?")], "answers": {"Which?": answer}}

    def test_each_question_has_its_answer(self, tmp_path: Path) -> None:
        ask = asked(item("A?"), item("B?", multi=True))
        permission = permission_for(answered(ask, "Red", "Red, Blue"), (), folder=AnswersFolder(tmp_path))
        assert permission.updated_input and permission.updated_input["answers"] == {
            "A?": "Red",
            "B?": "Red, Blue",
        }

    def test_notes_on_all_questions_are_told_once_and_are_no_part_of_an_answer(self, tmp_path: Path) -> None:
        ask = asked(item("A?"), item("B?"))
        permission = permission_for(
            answered(ask, "Red", "Blue", notes="Mind the contrast."), (), folder=AnswersFolder(tmp_path)
        )
        assert permission.updated_input
        assert permission.updated_input["answers"] == {"A?": "Red", "B?": "Blue"}
        notes = {"notes": "(on both questions) Mind the contrast."}
        assert permission.updated_input["annotations"] == {"A?": notes}

    def test_words_of_the_portal_are_no_notes_of_the_human(self, tmp_path: Path) -> None:
        """They stand beside the result."""
        given = answered(asked(item("A?"), item("B?")), "Red", "Blue", notes="Mind the contrast.")
        permission = permission_for(given, (), folder=AnswersFolder(tmp_path), note="[From the portal: go.]")
        assert permission.updated_input and permission.updated_input["annotations"] == {
            "A?": {"notes": "(on both questions) Mind the contrast."},
        }
        assert permission.context == "[From the portal: go.]"

    def test_who_answered_stands_beside_the_result(self, tmp_path: Path) -> None:
        """Beside it: the result is the answer, to the letter."""
        given = replace(answered(asked(item("A?")), "Red"), person="Mia")
        lost = replace(answered(commanded('cat-herder ask "How many?"'), "Three"), person="Bob")
        note = "[From the portal: go.]"
        permission = permission_for(given, [lost], folder=AnswersFolder(tmp_path), note=note)
        assert permission.context == "[From the portal: Mia answered.]\n\n[From the portal: go.]"
        assert permission.updated_input and permission.updated_input["answers"] == {"A?": "Red"}
        assert "“How many?” Bob answered: Three" in str(permission.updated_input["annotations"])

    @pytest.mark.parametrize("facts", [{"person": ""}, {"dismissed": True}, {"ended": "No answer."}])
    def test_nobody_is_named_who_did_not_answer(self, facts: dict[str, Any], tmp_path: Path) -> None:
        given = replace(answered(asked(item("A?")), "Red"), **{"person": "Mia", **facts})
        assert permission_for(given, (), folder=AnswersFolder(tmp_path)).context == ""

    @pytest.mark.parametrize(("notes", "end"), [("", ".]"), ("Tell Ann.", " and remarks: Tell Ann.]")])
    def test_an_approval_names_its_call(self, notes: str, end: str, tmp_path: Path) -> None:
        """Of two calls “approved this” does not say which, and without a remark nothing said it."""
        call = approval_of("1", "Bash", {"command": "git tag v2"}, workspace=tmp_path, home=tmp_path)
        given = GivenAnswer(call, {}, notes, approved=True, by="Mia")
        permission = permission_for(given, (), folder=AnswersFolder(tmp_path))
        assert permission.allow and permission.context == f"[From the portal: Mia approved `git tag v2`{end}"

    @pytest.mark.parametrize(
        ("command", "part"),
        [("cd x && git push", "git push"), ("git push", ""), ("sudo git push; a", "git push"), ("$X; a", "")],
    )
    def test_w2_the_part_of_a_line_that_matches_the_rule_is_shown(
        self, command: str, part: str, tmp_path: Path
    ) -> None:
        given = {"command": command}
        asked = approval_of("1", "Bash", given, workspace=tmp_path, home=tmp_path, rule="Bash(git push*)")
        shown = {one.title: one.text for one in asked.evidence}
        assert shown.get("The part that matches the rule", "") == part
        assert shown["Rule"] == "Bash(git push*)"

    def test_answers_to_asks_that_the_session_lost_ride_along(self, tmp_path: Path) -> None:
        """Of two asks in one message the session keeps only the last."""
        lost = answered(commanded('cat-herder ask "How many?"'), "Three", notes="at most")
        permission = permission_for(
            answered(asked(item("A?")), "Red"), [lost], folder=AnswersFolder(tmp_path)
        )
        assert permission.updated_input and permission.updated_input["answers"] == {"A?": "Red"}
        beside = "(none)\n\nYou also asked: “How many?” The human answered: Three (Notes: at most)"
        assert permission.updated_input["annotations"] == {"A?": {"notes": beside}}

    def test_the_option_of_a_lost_ask_is_told_with_its_meaning(self, tmp_path: Path) -> None:
        choice = {"label": "Up", "description": "to the next cent"}
        lost = answered(
            asked({"question": "Round?", "header": "R", "options": [choice], "multiSelect": False}), "Up"
        )
        permission = permission_for(
            answered(asked(item("A?")), "Red"), [lost], folder=AnswersFolder(tmp_path)
        )
        told = str(permission.updated_input and permission.updated_input["annotations"])
        assert "Round?” The human answered: Up (It means: to the next cent)" in told

    def test_a_long_answer_is_a_file_and_its_beginning(self, tmp_path: Path) -> None:
        """H5: a 100 kB answer works."""
        answer = "ä☃\n" * 30_000
        permission = permission_for(answered(asked(item("A?")), answer), (), folder=AnswersFolder(tmp_path))
        assert permission.updated_input
        shown = permission.updated_input["answers"]["A?"]
        assert shown.startswith(answer[:INLINE_HEAD]) and len(shown) < INLINE_LIMIT
        (path,) = tmp_path.iterdir()
        assert str(path) in shown and path.read_text() == answer

    def test_an_answer_of_just_the_limit_is_no_file(self, tmp_path: Path) -> None:
        answer = "x" * INLINE_LIMIT
        permission_for(answered(asked(item("A?")), answer), (), folder=AnswersFolder(tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_two_long_answers_have_a_file_each(self, tmp_path: Path) -> None:
        ask = asked(item("A?"), item("B?"))
        permission_for(answered(ask, "a" * 30_000, "b" * 30_000), (), folder=AnswersFolder(tmp_path))
        assert sorted(path.read_text()[0] for path in tmp_path.iterdir()) == ["a", "b"]


class TestAnswersToTheCommand:
    @pytest.mark.parametrize("answer", HARD)
    def test_bash_prints_the_answer_to_the_letter(self, answer: str, tmp_path: Path) -> None:
        assert printed(answered(commanded(), answer), folder=tmp_path) == f"{answer}\n"

    def test_the_folder_may_have_any_name(self, tmp_path: Path) -> None:
        folder = tmp_path / "it's; a $(folder)"
        folder.mkdir()
        assert printed(answered(commanded(), "Red"), folder=folder) == "Red\n"

    def test_the_rest_of_the_call_stays_as_the_agent_wrote_it(self, tmp_path: Path) -> None:
        permission = permission_for(
            answered(commanded(timeout=5000), "Red"), (), folder=AnswersFolder(tmp_path)
        )
        assert permission.updated_input
        assert {**permission.updated_input, "command": ""} == {**COMMAND, "timeout": 5000, "command": ""}

    def test_an_answer_to_a_command_in_the_background_is_its_result(self, tmp_path: Path) -> None:
        ask = commanded(run_in_background=True)
        permission = permission_for(answered(ask, "Red"), (), folder=AnswersFolder(tmp_path))
        assert permission.updated_input and "run_in_background" not in permission.updated_input

    def test_notes_are_printed_as_well(self, tmp_path: Path) -> None:
        said = printed(answered(commanded(), "Red", notes="Mind the contrast."), folder=tmp_path)
        assert said == "Red\n\nNotes from the human: Mind the contrast.\n"

    @pytest.mark.parametrize(("notes", "said"), [("", "Red\n"), ("Soon.", "Red\n\nNotes from Mia: Soon.\n")])
    def test_notes_name_who_wrote_them_and_an_answer_alone_does_not(
        self, notes: str, said: str, tmp_path: Path
    ) -> None:
        given = replace(answered(commanded(), "Red", notes=notes), person="Mia")
        assert printed(given, folder=tmp_path) == said

    def test_two_questions_of_one_command_are_distinguished(self, tmp_path: Path) -> None:
        ask = commanded('cat-herder ask "A?"; cat-herder ask "B?"')
        said = printed(answered(ask, "Red", "Blue"), folder=tmp_path)
        assert said.startswith("A?\nRed\n") and "B?\nBlue\n" in said

    @pytest.mark.parametrize("rest", ["&& touch hacked", "; touch hacked", "\ntouch hacked"])
    def test_nothing_else_of_the_command_is_run_and_the_agent_is_told(
        self, rest: str, tmp_path: Path
    ) -> None:
        said = printed(answered(commanded(f'cat-herder ask "Which?" {rest}'), "Red"), folder=tmp_path)
        assert said.startswith("Red\n") and "Nothing else of your command was run" in said

    def test_a_long_answer_is_a_file_and_its_beginning(self, tmp_path: Path) -> None:
        answer = "ä☃\n" * 30_000
        said = printed(answered(commanded(), answer), folder=tmp_path)
        assert said.startswith(answer[:INLINE_HEAD]) and len(said) < INLINE_LIMIT
        assert (tmp_path / "answer.txt").read_text() == answer
        assert str(tmp_path / "answer.txt") in said


@pytest.mark.parametrize(
    ("header", "about_goal"), [("Goal", True), (" goal ", True), ("Goals", False), ("", False)]
)
def test_the_header_says_whether_a_question_is_about_the_goal(header: str, about_goal: bool) -> None:
    first = {"question": "Which goal?", "header": "Style"}
    ask = ask_from_call(
        "toolu_1", "AskUserQuestion", {"questions": [first, {"question": "A?", "header": header}]}
    )
    assert ask and ask.about_goal is about_goal
