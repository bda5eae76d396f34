"""Rehearsal's scripts: reading them, choosing one, and finding the next turn in a conversation."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks_app.config.pipeline import choose_pipeline, load_project_config
from tasks_app.config.task_file import read_task_file
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.prompting.assembly import HistoryEntry, PromptParts, assemble
from tasks_app.prompting.feedback import AnsweredQuestion, answer_feedback
from tasks_app.prompting.replay import PastAction, replay
from tasks_app.rehearsal.conversation import Conversation, read_conversation
from tasks_app.rehearsal.sample import SAMPLE_TASK_FILE, create_sample_repository
from tasks_app.rehearsal.scenario import (
    SHIPPED,
    Choose,
    Entry,
    Scenario,
    Turn,
    choose_scenario,
    load_scenario,
    load_scenarios,
    questions_of,
)
from tasks_app.rehearsal.script import THE_END, Reply, reply_to
from tasks_app.rehearsal.server import RehearsalServer
from tests.waiting import wait_until

TOOLS = ("Bash", "Edit", "Read", "Write", "AskUserQuestion")
QUESTION = {
    "question": "Which?",
    "header": "Pick",
    "multiSelect": False,
    "options": [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}],
}
ASK = {"text": "I ask.", "tools": [{"name": "AskUserQuestion", "input": {"questions": [QUESTION]}}]}
FORK = {
    "choose": [
        {"if_answer": "A", "turns": [{"text": "A it is"}, {"text": "A is done"}]},
        {"answered": True, "turns": [{"text": "You said {{answer}}"}]},
        {"turns": [{"text": "Nobody was asked"}]},
    ]
}
SHIPPED_NAMES = sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def scenario(*turns: dict[str, Any], name: str = "play", when: list[str] | None = None) -> Scenario:
    return Scenario.model_validate({"name": name, "about": "A test.", "turns": turns, "when": when})


def request(*messages: dict[str, Any], tools: tuple[str, ...] = TOOLS, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": messages, "tools": [{"name": tool} for tool in tools], **more}


def conversation(*messages: dict[str, Any], **more: Any) -> Conversation:
    return read_conversation(json.dumps(request(*messages, **more)).encode())


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def asked(tool_use_id: str = "toolu_1", question: dict[str, Any] = QUESTION) -> dict[str, Any]:
    call = {
        "type": "tool_use",
        "id": tool_use_id,
        "name": "AskUserQuestion",
        "input": {"questions": [question]},
    }
    return {"role": "assistant", "content": [{"type": "text", "text": "I ask."}, call]}


def answered(words: str, tool_use_id: str = "toolu_1", question: str = "Which?") -> dict[str, Any]:
    text = f'The user answered: "{question}"="{words}". Read the answers carefully and follow them.'
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": tool_use_id, "content": text}],
    }


def answered_by_the_program() -> dict[str, Any]:
    text = "[Tool call interrupted: the session ended before this call's result was recorded.]"
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": text}
    return {"role": "user", "content": [result]}


class TestReading:
    @pytest.mark.parametrize("name", SHIPPED_NAMES)
    def test_every_shipped_scenario_is_valid(self, name: str) -> None:
        assert load_scenario(SHIPPED / f"{name}.yaml").about

    @pytest.mark.parametrize("name", SHIPPED_NAMES)
    def test_every_shipped_question_fits_the_tool(self, name: str) -> None:
        turns = list(all_turns(load_scenario(SHIPPED / f"{name}.yaml").turns))
        calls = [tool for turn in turns for tool in turn.tools if tool.name == "AskUserQuestion"]
        for question in [question for call in calls for question in call.input["questions"]]:
            assert len(question["header"]) <= 12
            assert 2 <= len(question["options"]) <= 4
            assert all(option["label"] and option["description"] for option in question["options"])

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("name: [", "cannot be read"),
            ("name: play\nabout: x\nturns: []", "turns: Tuple should have at least 1 item"),
            (
                "name: play\nabout: x\nturns: [{}]",
                "turns.0: Value error, a turn needs a text, tools or an error",
            ),
            ("name: play\nabout: x\nturns: [{text: a, delay: -1}]", "turns.0.delay: Input should be greater"),
            ("name: play\nabout: x\nturns: [{txt: a}]", "turns.0.txt: Extra inputs are not permitted"),
            (
                "name: play\nabout: x\nturns: [{text: '{{anwser}}'}]",
                "unknown placeholder {{anwser}}; known are answer",
            ),
            (
                "name: play\nabout: x\nturns: [{choose: [{if_answer: A, turns: []}]}]",
                "turns.0.choose: Value error, the last branch",
            ),
            (
                "name: play\nabout: x\nturns: [{choose: [{turns: [{text: a, cut: 7}]}]}]",
                "turns.0.choose.0.turns.0.cut: Input should be a valid boolean",
            ),
            ("name: other\nabout: x\nturns: [{text: a}]", 'the name "other" must be the name of the file'),
        ],
    )
    def test_a_broken_scenario_is_an_error_that_names_file_and_place(
        self, tmp_path: Path, text: str, complaint: str
    ) -> None:
        """R5."""
        path = tmp_path / "play.yaml"
        path.write_text(text)
        with pytest.raises(BadInput) as caught:
            load_scenarios(tmp_path)
        assert str(caught.value).startswith(f"{path}: ")
        assert complaint in str(caught.value)


class TestChoosing:
    SCENARIOS = (
        scenario({"text": "x"}, name="anything", when=[]),
        scenario({"text": "x"}, name="paint", when=["paint"]),
        scenario({"text": "x"}, name="paint-red", when=["paint", "red"]),
        scenario({"text": "x"}, name="hidden"),
    )

    @pytest.mark.parametrize(
        ("prompt", "name"),
        [
            ("cook", "anything"),
            ("paint it", "paint"),
            ("paint it red", "paint-red"),
            ("paint it red\n  rehearsal: hidden  \nplease", "hidden"),
            ("speak of rehearsal: hidden in a sentence", "anything"),
        ],
    )
    def test_the_named_scenario_wins_then_the_most_particular(self, prompt: str, name: str) -> None:
        assert choose_scenario(self.SCENARIOS, prompt).name == name

    def test_an_unknown_name_is_an_error_that_lists_the_known_ones(self) -> None:
        with pytest.raises(BadInput, match='no scenario "tragedy"; there are anything, paint'):
            choose_scenario(self.SCENARIOS, "rehearsal: tragedy")

    def test_a_prompt_for_which_nothing_plays_is_an_error(self) -> None:
        with pytest.raises(BadInput, match="no scenario matches"):
            choose_scenario(self.SCENARIOS[3:], "cook")

    @pytest.mark.parametrize("step", ["plan", "implement"])
    def test_the_sample_task_has_a_scenario_for_each_step(self, tmp_path: Path, step: str) -> None:
        create_sample_repository(tmp_path / "sample")
        task = (tmp_path / "sample" / SAMPLE_TASK_FILE).read_text()
        chosen = choose_scenario(load_scenarios(), f'You are responsible for the step "{step}".\n\n{task}')
        assert chosen.name == f"sample-{step}"


class TestTheNextTurn:
    PLAY = scenario(ASK, FORK)

    def test_the_first_request_gets_the_first_turn(self) -> None:
        reply = reply_to(conversation(user("go")), self.PLAY)
        assert reply.text == "I ask."
        assert reply.calls[0].name == "AskUserQuestion"

    @pytest.mark.parametrize(
        ("words", "text"),
        [("A", "A it is"), ("neither", "You said neither"), ('"{{turn}}"\n☃', 'You said "{{turn}}"\n☃')],
    )
    def test_the_answer_decides_the_way(self, words: str, text: str) -> None:
        said = conversation(user("go"), asked(), answered(words))
        assert reply_to(said, self.PLAY).text == text

    def test_the_way_once_taken_is_kept(self) -> None:
        said = conversation(user("go"), asked(), answered("A"), assistant("A it is"), user("and?"))
        assert reply_to(said, self.PLAY).text == "A is done"

    def test_a_later_answer_does_not_change_an_earlier_fork(self) -> None:
        other = {**QUESTION, "question": "Sure?"}
        second = {"tools": [{"name": "AskUserQuestion", "input": {"questions": [other]}}]}
        play = scenario(ASK, FORK, second, {"text": "{{answers}}"})
        said = conversation(
            user("go"),
            *(asked(), answered("B"), assistant("You said B"), user("and?")),
            *(asked("toolu_2", other), answered("A", "toolu_2", "Sure?")),
        )
        assert reply_to(said, play).text == "B\nA"

    def test_without_the_tool_the_question_is_left_out(self) -> None:
        """H1: a threshold of 0 offers no way to ask."""
        reply = reply_to(conversation(user("go"), tools=("Bash",)), self.PLAY)
        assert reply.text == "Nobody was asked"

    def test_past_its_end_the_script_says_so(self) -> None:
        reply = reply_to(conversation(user("go"), assistant("x"), user("again")), scenario({"text": "x"}))
        assert reply.text == THE_END.text

    def test_a_repeated_turn_is_given_as_often_as_it_says(self) -> None:
        play = scenario({"text": "turn {{turn}}", "repeat": 2}, {"text": "last"})
        first = (user("go"), assistant("turn 1"), user("on"))
        assert reply_to(conversation(*first), play).text == "turn 2"
        assert reply_to(conversation(*first, assistant("turn 2"), user("on")), play).text == "last"

    def test_a_split_assistant_message_is_one_turn(self) -> None:
        parts = (assistant("a"), {"role": "system", "content": "note"}, assistant("b"))
        said = conversation(user("go"), *parts, user("on"))
        assert len(said.rounds) == 1

    def test_the_filler_of_a_broken_turn_is_no_turn(self) -> None:
        said = conversation(user("go"), assistant("No response requested."), user("on"))
        assert said.rounds == ()
        assert len(conversation(user("go"), assistant("No response requested."), assistant("a")).rounds) == 1

    def test_a_question_that_died_with_its_process_is_asked_again(self) -> None:
        """As another call: one that has the id of the first would be taken for it."""
        died = conversation(user("go"), asked(), answered_by_the_program(), user("You were interrupted."))
        reply = reply_to(died, self.PLAY)
        assert reply.text == "I ask."
        assert reply.calls[0].id != reply_to(conversation(user("go")), self.PLAY).calls[0].id

    def test_a_question_that_died_with_its_process_is_answered_by_the_next_prompt(self) -> None:
        feedback = answer_feedback([AnsweredQuestion("Which?", "B")], answered_by="Ada")
        told = str(feedback)
        died = conversation(user("go"), asked(), answered_by_the_program(), user(told))
        assert reply_to(died, self.PLAY).text == "You said B"

    def test_a_guard_looks_into_the_first_prompt(self) -> None:
        play = scenario(
            {"text": "plan", "only_if_prompt": "step plan"}, {"text": "other", "unless_prompt": "step plan"}
        )
        assert reply_to(conversation(user("step plan")), play).text == "plan"
        assert reply_to(conversation(user("step code")), play).text == "other"

    def test_a_replayed_session_knows_the_answer_from_its_prompt(self) -> None:
        """H9: the question is not asked again."""
        told = answer_feedback([AnsweredQuestion("Which?", "B,\nplease")], answered_by="Ada")
        prompt = replay("go", actions=[PastAction("reasoning", "Which?")], feedback=told)
        assert reply_to(conversation(user(prompt)), self.PLAY).text == "You said B,\nplease"

    def test_a_later_step_knows_what_was_decided_before(self) -> None:
        """H10."""
        noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
        entries = tuple(
            HistoryEntry("one", noon, noon, "Ada", question, answer)
            for question, answer in [("Which?", "A"), ("Else?", "C")]
        )
        prompt = assemble(PromptParts("two", ("one", "two"), "Which?", "Do it.", history=entries))
        assert reply_to(conversation(user(prompt)), self.PLAY).text == "A it is"

    def test_a_question_that_only_the_log_mentions_is_asked_again(self) -> None:
        prompt = (
            "--- PREVIOUS ACTIONS LOG ---\n\n> Which?\n\nAnswer:\n> A\n\n--- FEEDBACK ---\n\nInterrupted."
        )
        assert reply_to(conversation(user(prompt)), self.PLAY).text == "I ask."

    def test_an_ask_by_command_is_answered_by_its_output(self) -> None:
        command = {"command": 'cat-herder ask "Which way?"'}
        play = scenario({"tools": [{"name": "Bash", "input": command}]}, {"text": "{{answer}}"})
        call = {"type": "tool_use", "id": "t", "name": "Bash", "input": command}
        result = {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "text", "text": "left\nor so"}],
        }
        said = conversation(
            user("go"), {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
        )
        assert reply_to(said, play).text == "left\nor so"

    def test_several_questions_give_one_line_each(self) -> None:
        questions = [QUESTION, {**QUESTION, "question": "How?"}]
        call = {"type": "tool_use", "id": "t", "name": "AskUserQuestion", "input": {"questions": questions}}
        text = 'The user answered: "Which?"="A, B", "How?"="so "to say"". Read on.'
        result = {"type": "tool_result", "tool_use_id": "t", "content": text}
        said = conversation(
            user("go"), {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
        )
        assert said.rounds[0].answers[0].words == 'A, B\nso "to say"'

    def test_the_workspace_comes_from_the_request(self) -> None:
        play = scenario({"tools": [{"name": "Read", "input": {"file_path": "{{workspace}}/a.txt"}}]})
        note = {
            "role": "system",
            "content": "# Environment\n - Primary working directory: /srv/a b\n - Shell: sh",
        }
        reply = reply_to(conversation(user("go"), note), play)
        assert reply.calls[0].input == {"file_path": "/srv/a b/a.txt"}

    def test_call_ids_repeat_for_one_turn_and_differ_for_all_others(self) -> None:
        play = scenario({"tools": [{"name": "Bash"}, {"name": "Bash"}], "repeat": 2})
        session = {"user_id": json.dumps({"session_id": "5698ceea-a11e-42a2-8359-dfe6d65a97f1"})}
        first = ids(reply_to(conversation(user("go"), metadata=session), play))
        again = ids(reply_to(conversation(user("go"), metadata=session), play))
        second = ids(reply_to(conversation(user("go"), assistant("x"), user("on"), metadata=session), play))
        elsewhere = ids(reply_to(conversation(user("go")), play))
        assert first == again
        assert len({*first, *second, *elsewhere}) == 6


class TestTheServer:
    def test_a_stream_puts_text_and_input_together_again(self, tmp_path: Path) -> None:
        text, content = "Ünïcode ☃ 漢字 🐈 " * 40, 'line\n"quoted" 🐈 ' * 60
        call = {"name": "Write", "input": {"file_path": "a", "content": content}}
        with serving(tmp_path, {"text": text, "tools": [call]}) as server:
            events = streamed(post(server, request(user("go"), stream=True)))
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(delta.get("text", "") for delta in deltas) == text
        assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == call["input"]
        assert len(deltas) > 20
        assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
        assert events[-2]["delta"]["stop_reason"] == "tool_use"

    def test_without_stream_the_message_comes_whole(self, tmp_path: Path) -> None:
        with serving(tmp_path, {"text": "☃"}) as server:
            message = post(server, request(user("go"))).json()
        assert message["content"] == [{"type": "text", "text": "☃"}]
        assert message["stop_reason"] == "end_turn"

    def test_a_request_without_tools_takes_no_turn(self, tmp_path: Path) -> None:
        with serving(tmp_path, {"text": "the script"}) as server:
            message = post(server, request(user("Write a title"), tools=())).json()
        assert message["content"][0]["text"] == "Rehearsal"

    def test_tokens_of_a_longer_conversation_are_read_from_the_cache(self, tmp_path: Path) -> None:
        """P11."""
        later = (user("word " * 400), assistant("x"), user("and a new one, " * 40))
        with serving(tmp_path, {"text": "x"}) as server:
            first = post(server, request(*later[:1])).json()["usage"]
            second = post(server, request(*later)).json()["usage"]
        assert first["cache_read_input_tokens"] == 0
        assert first["cache_creation_input_tokens"] > 500
        assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
        assert 100 < second["cache_creation_input_tokens"] < 400

    def test_an_error_turn_is_an_http_error_with_its_headers(self, tmp_path: Path) -> None:
        error = {
            "status": 529,
            "type": "overloaded_error",
            "message": "Too much",
            "headers": {"retry-after": "9"},
        }
        with serving(tmp_path, {"error": error}) as server:
            response = post(server, request(user("go")))
        assert response.status == 529
        assert response.headers["retry-after"] == "9"
        assert response.json() == {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "Too much"},
        }

    @pytest.mark.parametrize("stream", [True, False])
    def test_a_cut_turn_ends_in_the_middle(self, tmp_path: Path, stream: bool) -> None:
        with (
            serving(tmp_path, {"text": "never heard", "cut": True}) as server,
            pytest.raises(IncompleteRead),
        ):
            post(server, request(user("go"), stream=stream))

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            (b"{", "Invalid JSON"),
            (b'{"model": "m", "messages": []}', "messages: List should have at least 1 item"),
            (json.dumps(request(user("rehearsal: tragedy"))).encode(), 'there is no scenario "tragedy"'),
        ],
    )
    def test_what_cannot_be_played_is_an_api_error_in_words(
        self, tmp_path: Path, body: bytes, complaint: str
    ) -> None:
        """R5."""
        with serving(tmp_path, {"text": "x"}) as server:
            response = post_bytes(server, body)
        assert response.status == 400
        assert complaint in response.json()["error"]["message"]

    def test_it_counts_tokens_and_answers_a_knock(self, tmp_path: Path) -> None:
        with serving(tmp_path, {"text": "x"}) as server:
            counted = post_bytes(server, b"x" * 400, path="/v1/messages/count_tokens").json()
            assert post_bytes(server, b"", path="/", method="HEAD").status == 200
            assert post_bytes(server, b"", path="/", method="GET").status == 200
            assert post_bytes(server, b"{}", path="/v1/else").status == 404
        assert 90 < counted["input_tokens"] < 110

    def test_it_keeps_the_requests_it_was_sent(self, tmp_path: Path) -> None:
        body = request(user("go"))
        with serving(tmp_path, {"text": "x"}) as server:
            post(server, body)
        assert server.requests == [json.loads(json.dumps(body))]

    def test_stopping_cuts_a_turn_that_waits(self, tmp_path: Path) -> None:
        server = serving(tmp_path, {"text": "x", "delay": 60})
        server.start()
        with closing(connect(server)) as connection:
            connection.request("POST", "/v1/messages", json.dumps(request(user("go"))))
            wait_until(lambda: server.requests)
            server.stop()
            with pytest.raises(ConnectionError):
                connection.getresponse()

    def test_a_client_that_hangs_up_leaves_no_traceback(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        threads = set(threading.enumerate())
        more_than_buffers_hold = request(user("go"), system=f"Working directory: {'x' * 1_000_000}")
        with serving(tmp_path, {"text": "{{workspace}}" * 20}) as server:
            with closing(connect(server)) as connection:
                connection.request("POST", "/v1/messages", json.dumps(more_than_buffers_hold))
                connection.getresponse().close()
            wait_until(lambda: len(set(threading.enumerate()) - threads) == 1)
        assert capfd.readouterr().err == ""
        assert caplog.text == ""

    def test_starting_and_stopping_twice_is_harmless(self, tmp_path: Path) -> None:
        server = serving(tmp_path, {"text": "x"})
        server.start()
        url = server.url
        server.start()
        assert server.url == url
        server.stop()
        server.stop()


class TestTheSample:
    def test_it_is_the_same_commit_every_time(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            create_sample_repository(tmp_path / name)
        assert git(tmp_path / "one", "rev-parse", "HEAD") == git(tmp_path / "two", "rev-parse", "HEAD")
        assert git(tmp_path / "one", "status", "--porcelain") == ""
        assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]

    def test_a_sample_that_is_there_is_left_alone(self, tmp_path: Path) -> None:
        create_sample_repository(tmp_path / "sample")
        (tmp_path / "sample" / "README.md").write_text("mine")
        create_sample_repository(tmp_path / "sample")
        assert (tmp_path / "sample" / "README.md").read_text() == "mine"

    def test_what_else_is_in_its_place_is_not_touched(self, tmp_path: Path) -> None:
        """R5."""
        (tmp_path / "sample").mkdir()
        (tmp_path / "sample" / "thesis.txt").write_text("mine")
        with pytest.raises(WorkspaceError, match="something else is there"):
            create_sample_repository(tmp_path / "sample")
        assert [path.name for path in (tmp_path / "sample").iterdir()] == ["thesis.txt"]

    def test_exactly_one_of_its_tests_fails(self, tmp_path: Path) -> None:
        create_sample_repository(tmp_path / "sample")
        command = [sys.executable, "-B", "-m", "unittest", "discover", "-v", "-s", "tests"]
        done = subprocess.run(command, cwd=tmp_path / "sample", capture_output=True, text=True, check=False)
        assert done.returncode == 1
        failed = {line.split()[1] for line in done.stderr.splitlines() if line.startswith("FAIL: ")}
        assert failed == {"test_the_shares_add_up_to_the_bill"}

    def test_its_pipeline_and_its_task_are_valid(self, tmp_path: Path) -> None:
        create_sample_repository(tmp_path / "sample")
        config = load_project_config((tmp_path / "sample" / "cat-herder.yaml").read_text())
        _, task = read_task_file(tmp_path / "sample" / SAMPLE_TASK_FILE)
        pipeline = choose_pipeline(config, explicit=None, task=task.pipeline)
        assert [step.name for step in pipeline.steps] == ["plan", "implement"]
        assert task.title == "Split the bill to the last cent"


def all_turns(entries: tuple[Entry, ...]) -> Iterator[Turn]:
    for entry in entries:
        if isinstance(entry, Choose):
            for branch in entry.choose:
                yield from all_turns(branch.turns)
        else:
            yield entry


def ids(reply: Reply) -> list[str]:
    return [call.id for call in reply.calls]


def serving(folder: Path, turn: dict[str, Any]) -> RehearsalServer:
    play = {"name": "play", "about": "A test.", "when": [], "turns": [turn]}
    (folder / "play.yaml").write_text(yaml.safe_dump(play))
    return RehearsalServer(scenarios=folder)


@dataclass(frozen=True)
class Answer:
    """An HTTP response, read to its end."""

    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def connect(server: RehearsalServer) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]))


def post(server: RehearsalServer, body: dict[str, Any]) -> Answer:
    return post_bytes(server, json.dumps(body).encode())


def post_bytes(
    server: RehearsalServer, body: bytes, *, path: str = "/v1/messages", method: str = "POST"
) -> Answer:
    with closing(connect(server)) as connection:
        connection.request(method, path, body)
        with connection.getresponse() as response:
            return Answer(response.status, response.headers, response.read())


def streamed(answer: Answer) -> list[dict[str, Any]]:
    lines = answer.body.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("given", ["What?", None, ["What?"], [{"header": "A"}], {"question": "What?"}])
def test_a_call_of_a_wrong_shape_asks_nothing(given: object) -> None:
    assert questions_of("AskUserQuestion", {"questions": given}) == ()
