"""What every agent behind the port must do: the same tests for the quick one and for the real program."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tasks_app.agent.gate.hook import NOT_ASKABLE, NOT_WRITTEN_OUT
from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.agent.port import AgentEvent, Ending, RunResult, Stop
from tasks_app.agent.stream import Stream
from tasks_app.agent.transcripts import deferred_call
from tasks_app.core.errors import BadInput
from tasks_app.sandbox import Sandbox, SandboxMode, detect
from tests.agents import Bench, fake_bench, real_bench

SANDBOXED = pytest.param("sandboxed", marks=pytest.mark.bubblewrap)
#: The same program, with less around it.
UNSANDBOXED = pytest.param("unsandboxed", marks=pytest.mark.long)
EVERYTHING = '@/etc/passwd\n/clear\n"; rm -rf / #\n$(touch pwned) `touch pwned`\r\\n\t☃ 🐈 é “ ”=" \\ \'%s'
NASTY = ["@/etc/passwd", "/clear", EVERYTHING]


def make(kind: str, base: Path) -> Iterator[Bench]:
    if kind == "fake":
        yield fake_bench(base)
        return
    mode = SandboxMode.REQUIRE if kind == "sandboxed" else SandboxMode.OFF
    with real_bench(base, detect(mode, hidden=[base / "data"])) as bench:
        yield bench


@pytest.fixture(params=["fake", SANDBOXED])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from make(request.param, tmp_path)


@pytest.fixture(params=["fake", SANDBOXED, UNSANDBOXED])
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """With the sandbox off as well."""
    yield from make(request.param, tmp_path)


@pytest.fixture(params=[SANDBOXED, UNSANDBOXED])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from make(request.param, tmp_path)


@dataclass
class Session:
    """A whole session, for several tests that only read."""

    bench: Bench
    #: After each run: processes that are left of it.
    left: list[list[int]] = field(default_factory=list)
    #: How much of the transcript was stored when each tool's result came.
    stored_at_results: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench.recorder.heard = self._heard

    def ended(self, result: RunResult) -> RunResult:
        self.left.append(marked_processes(self.bench.workspace))
        return result

    def _heard(self, event: AgentEvent) -> None:
        if event.kind == "tool_result":
            self.stored_at_results.append(len(self.bench.recorder.entries))


@pytest.fixture(scope="module", params=["fake", SANDBOXED, UNSANDBOXED])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with contextmanager(make)(request.param, tmp_path_factory.mktemp("session")) as bench:
        yield Session(bench)


@pytest.fixture(scope="module")
def finished(session: Session) -> tuple[Session, RunResult]:
    """A session without a question."""
    return session, session.ended(session.bench.start("no-questions"))


@pytest.fixture(scope="module", params=["fake", SANDBOXED, UNSANDBOXED])
def answered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, RunResult, RunResult]]:
    """A session that asked and was answered, and the results of both runs."""
    with contextmanager(make)(request.param, tmp_path_factory.mktemp("answered")) as bench:
        session = Session(bench)
        asked = session.ended(bench.start("ask-and-end"))
        yield session, asked, session.ended(bench.answer(asked, EVERYTHING))


def questions(result: RunResult) -> list[str]:
    return [item.question for ask in result.asks for item in ask.items]


def test_a_run_without_a_question_does_its_work_and_ends(finished: tuple[Session, RunResult]) -> None:
    session, result = finished
    assert (result.ending, result.asks, result.error) == (Ending.FINISHED, (), "")
    assert result.text == "`notes.txt` is written. No question was needed."
    assert (session.bench.workspace / "notes.txt").read_text() == "one\nzwei ☃\n"
    assert result.usage.output_tokens > 0
    assert result.usage.cost_usd > 0
    assert session.left == [[]]


def test_the_transcript_is_stored_before_the_run_ends(finished: tuple[Session, RunResult]) -> None:
    """R2: what was said stands in the store while the agent is still at work."""
    session, _ = finished
    assert session.stored_at_results[-1] > 0
    assert session.stored_at_results[-1] < len(session.bench.recorder.entries)


def test_an_asking_run_ends_and_says_what_was_asked(answered: tuple[Session, RunResult, RunResult]) -> None:
    """H3a, H4: the question is reported, its tokens count, and no process is left."""
    session, result, _ = answered
    assert result.ending is Ending.ASKED
    (ask,) = result.asks
    assert (ask.way, ask.tool_use_id) == ("AskUserQuestion", result.deferred)
    (item,) = ask.items
    assert (item.question, [option.label for option in item.options]) == ("Stop here?", ["Stop", "Go on"])
    assert all(option.description for option in item.options)
    assert result.usage.input_tokens > 0
    assert session.left[0] == []


def test_what_is_asked_is_reported_before_the_run_ends(any_bench: Bench) -> None:
    """H4, F: people need not wait for the process; the session holds its deferred call by then."""
    waits_at: list[str] = []

    def asked(result: RunResult) -> None:
        waits_at.append(deferred_call({"": any_bench.recorder.entries}))

    any_bench.recorder.heard_asks = asked
    result = any_bench.start("ask-and-end")
    (reported,) = any_bench.recorder.asks
    assert reported.ending is result.ending is Ending.ASKED
    assert (reported.asks, reported.deferred) == (result.asks, result.deferred)
    assert waits_at == [result.deferred]
    assert reported.exited_at is None


def test_the_answer_is_the_result_of_the_very_call_to_the_letter(
    answered: tuple[Session, RunResult, RunResult],
) -> None:
    """H7."""
    session, asked, done = answered
    assert done.ending is Ending.FINISHED
    assert done.delivered == {asked.deferred}
    assert f'"Stop here?"="{EVERYTHING}"' in session.bench.result_of(asked.deferred)
    assert not (session.bench.workspace / "pwned").exists()


def test_a_message_of_an_unknown_kind_is_kept_and_does_no_harm(
    answered: tuple[Session, RunResult, RunResult],
) -> None:
    session, _, done = answered
    assert done.ending is Ending.FINISHED
    unknown = [event for event in session.bench.recorder.events if event.kind == "unknown"]
    assert unknown
    assert all(event.raw["type"] == event.payload["type"] for event in unknown)


def test_cost_and_tokens_of_a_resumed_session_are_counted_once(
    answered: tuple[Session, RunResult, RunResult],
) -> None:
    """P11: the agent reports totals of the session; a run's cost is what it added."""
    session, asked, done = answered
    results = [event for event in session.bench.recorder.events if event.kind == "result"]
    total = results[-1].payload["cost_usd"]
    assert asked.usage.cost_usd + done.usage.cost_usd == pytest.approx(total)
    assert 0 < done.usage.cost_usd < total
    assert done.usage.output_tokens < results[-1].raw["usage"]["output_tokens"] + asked.usage.output_tokens


@pytest.mark.parametrize("text", NASTY)
def test_an_answer_to_the_command_is_all_that_it_prints(bench: Bench, text: str) -> None:
    """H3b, H7."""
    asked = bench.start("ask-command")
    assert questions(asked) == ["Which way, left or right?"]
    assert asked.asks[0].way == "command"
    done = bench.answer(asked, text)
    assert done.ending is Ending.FINISHED
    assert bench.result_of(asked.deferred) == text
    assert not (bench.workspace / "pwned").exists()


def test_of_a_compound_command_nothing_else_is_run(bench: Bench) -> None:
    """H3b: and the agent is told so."""
    asked = bench.start("compound-with-work")
    assert questions(asked) == ["Which way?"]
    bench.answer(asked, "Left.")
    assert [path.name for path in bench.workspace.iterdir()] == []
    assert bench.result_of(asked.deferred).startswith("Left.\n")
    assert "Nothing else of your command was run" in bench.result_of(asked.deferred)


def test_a_question_that_only_the_shell_knows_is_refused_and_asked_anew(bench: Bench) -> None:
    """H3, D5: what is asked is the agent's own words, and nothing of a refused command is run."""
    asked = bench.start("ask-by-expansions")
    assert [text.endswith(NOT_WRITTEN_OUT) for _, text in bench.results()] == [True, True]
    assert questions(asked) == ["Which way, left or right?"]
    done = bench.answer(asked, "Left.")
    assert done.ending is Ending.FINISHED
    assert bench.result_of(asked.deferred) == "Left."
    assert [path.name for path in bench.workspace.iterdir()] == []


def test_questions_without_a_text_of_their_own_are_refused_and_asked_anew(bench: Bench) -> None:
    """H3: no header stands for the question, and no two questions of a card look equal."""
    asked = bench.start("ask-without-text")
    assert [text.endswith(NOT_ASKABLE) for _, text in bench.results()] == [True, True]
    assert questions(asked) == ["Which way?"]
    assert bench.answer(asked, "Left").ending is Ending.FINISHED
    assert '"Which way?"="Left"' in bench.result_of(asked.deferred)


def test_calls_that_the_program_rejects_open_no_question(real: Bench) -> None:
    """H3: beside them the proper one is asked alone, and its answer is all that the task waits for."""
    asked = real.start("ask-beside-rejected")
    assert questions(asked) == ["Which way?"]
    assert all(questions(heard) == ["Which way?"] for heard in real.recorder.asks)
    assert real.answer(asked, "Left").ending is Ending.FINISHED
    assert '"Which way?"="Left"' in real.result_of(asked.deferred)


@pytest.mark.parametrize("text", ["ä☃" * 50_000, ("word " * 19 + "word\n") * 1000])
def test_a_huge_answer_arrives_whole(bench: Bench, text: str) -> None:
    """The head is in the result, the whole in a file that the agent can read and cannot change."""
    asked = bench.start("read-the-answer")
    done = bench.answer(asked, text)
    assert done.ending is Ending.FINISHED
    told = bench.result_of(asked.deferred)
    assert text[:4000] in told
    assert str(bench.answers / "given-1-1.txt") in told
    read = bench.results()[-1][1]
    assert hashlib.sha256(text.encode()).hexdigest() in read
    assert not (bench.answers / "mine").exists()


def test_several_questions_get_their_own_answers(bench: Bench) -> None:
    """H3a: one choice, several choices, free text, and notes, which are no part of an answer."""
    asked = bench.start("ask-multi")
    (ask,) = asked.asks
    assert [item.multi_select for item in ask.items] == [False, True, False]
    bench.answer(asked, "SQLite", "CSV, PDF", 'write "it", please', notes="In that order.")
    told = bench.result_of(asked.deferred)
    assert '"Which database?"="SQLite"' in told
    assert '"Which formats should the export write?"="CSV, PDF"' in told
    assert '"What should the command be called?"="write "it", please"' in told
    assert told.count('" notes: (on all 3 questions) In that order.') == 1


def test_a_second_question_keeps_the_first_answer(any_bench: Bench) -> None:
    """H7, and a fault of the reference tool: after the second question the first answer was gone. The CLI
    reads a file and forgets the session if a prompt begins with these answers."""
    first = any_bench.start("ask-then-ask")
    second = any_bench.answer(first, "@/etc/passwd")
    assert second.ending is Ending.ASKED
    assert second.delivered == {first.deferred}
    (last,) = questions(second)
    assert last != "Tea or coffee?"
    done = any_bench.answer(second, "/clear")
    assert done.ending is Ending.FINISHED
    assert '"Tea or coffee?"="@/etc/passwd"' in any_bench.result_of(first.deferred)
    assert f'"{last}"="/clear"' in any_bench.result_of(second.deferred)


def test_two_questions_in_one_message_are_both_asked_and_both_answered(bench: Bench) -> None:
    """H3: the session keeps only one of the calls; its result carries the other's answer."""
    asked = bench.start("ask-two-in-one-message")
    assert questions(asked) == ["Which colour?", "Which size?"]
    done = bench.answer(asked, "Blue", "Large")
    assert done.ending is Ending.FINISHED
    told = bench.result_of(asked.deferred)
    assert "Blue" in told
    assert "Large" in told
    assert told.count("You also asked: “Which ") == 1


def test_what_stands_beside_a_question_is_done(bench: Bench) -> None:
    asked = bench.start("ask-beside-tools")
    assert asked.ending is Ending.ASKED
    assert (bench.workspace / "beside.txt").read_text() == "Written beside the question.\n"
    bench.answer(asked, "Vanilla")
    assert any("beside the question" in text for _, text in bench.results())


def test_a_question_from_within_a_script_is_asked_after_the_turn(bench: Bench) -> None:
    """H3: it cannot halt the agent there, but it is not lost; the answer comes with a prompt."""
    asked = bench.start("ask-in-a-script")
    assert (asked.ending, asked.deferred) == (Ending.ASKED, "")
    assert questions(asked) == ["Which door?"]
    assert (bench.workspace / "after-the-script.txt").exists()
    again = bench.go_on("The human says: the red one.")
    assert again.ending is Ending.FINISHED, "the note was asked a second time"


def test_where_nobody_may_be_asked_there_is_no_way_to_ask(bench: Bench) -> None:
    """H1, H13."""
    bench.may_ask = False
    result = bench.start("ask-and-end")
    assert (result.ending, result.asks) == (Ending.FINISHED, ())
    for request in bench.server.requests if bench.server else []:
        assert "AskUserQuestion" not in {tool["name"] for tool in request.get("tools", [])}
        assert "cat-herder" not in str(request.get("messages"))


@pytest.mark.parametrize("moment", ["tick", "record"])
def test_a_stop_ends_the_run_at_once_and_keeps_what_was_used(any_bench: Bench, moment: str) -> None:
    started = any_bench.workspace / "slow-started.txt"

    def stop() -> None:
        if started.exists():
            raise Stop("enough")

    def stop_at(event: AgentEvent) -> None:
        if event.kind == "tool_use":
            raise Stop("enough")

    if moment == "tick":
        any_bench.recorder.looked = stop
    else:
        any_bench.recorder.heard = stop_at
    with pytest.raises(Stop) as stopped:
        any_bench.start("slow")
    assert marked_processes(any_bench.workspace) == []
    assert stopped.value.partial is not None
    assert stopped.value.partial.ending is Ending.STOPPED
    assert stopped.value.partial.usage.input_tokens > 0
    assert not (any_bench.workspace / "slow-ended.txt").exists()


def test_an_error_of_the_recorder_ends_the_run_and_is_raised(any_bench: Bench) -> None:
    def broken(event: AgentEvent) -> None:
        raise RuntimeError("the disk is full")

    any_bench.recorder.heard = broken
    with pytest.raises(RuntimeError, match="the disk is full"):
        any_bench.start("slow")
    assert marked_processes(any_bench.workspace) == []


def test_a_stopped_session_resumes_with_a_prompt(bench: Bench) -> None:
    """R2: from its last recorded point."""

    def stop() -> None:
        if (bench.workspace / "slow-started.txt").exists():
            raise Stop("enough")

    bench.recorder.looked = stop
    with pytest.raises(Stop):
        bench.start("slow")
    bench.recorder.looked = lambda: None
    done = bench.go_on("You were interrupted. Go on.")
    assert done.ending is Ending.FINISHED


def test_its_events_can_be_read_again_from_their_raw_messages(bench: Bench) -> None:
    """R2: what a worker's successor knows of a run is what its events say."""
    asked = bench.start("ask-two-in-one-message")
    stream = Stream()
    again = [event for one in bench.recorder.events if one.raw for event in stream.read(one.raw)]
    assert [(e.kind, e.payload) for e in again] == [(e.kind, e.payload) for e in bench.recorder.events]
    assert stream.open_asks() == asked.asks
    assert stream.deferred == asked.deferred
    assert stream.usage(cost_before=0.0) == asked.usage


def test_a_usage_limit_is_distinguished_from_a_failure(bench: Bench) -> None:
    """P8."""
    result = bench.start("overloaded")
    assert result.ending is Ending.LIMIT
    assert "429" in result.error


def test_an_error_of_the_agent_is_a_failure_with_its_reason(bench: Bench) -> None:
    result = bench.start("refused")
    assert result.ending is Ending.FAILED
    assert "This is refused." in result.error


@pytest.mark.parametrize(
    "session", ["", "--help", "../../x", "0" * 32, "{12345678-1234-1234-1234-123456789012}"]
)
def test_a_session_id_that_is_no_uuid_is_refused(bench: Bench, session: str) -> None:
    bench.session = session
    with pytest.raises(BadInput, match="is not a session id"):
        bench.start("no-questions")
    assert bench.recorder.events == []


def test_nothing_that_the_agent_started_outlives_its_run(real: Bench) -> None:
    result = real.start("leave-something-running")
    assert result.ending is Ending.FINISHED
    assert marked_processes(real.workspace) == []


def test_the_agent_sees_no_secret_of_the_worker(real: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: neither in its environment nor, in the sandbox, in the data directory."""
    monkeypatch.setenv("CATHERDER_SECRET_KEY", "told-to-nobody")
    monkeypatch.setenv("DATABASE_URL", "postgresql://told-to-nobody")
    real.start("look-around")
    (seen,) = [text for _, text in real.results()]
    assert f"HOME={real.home}" in seen
    assert "told-to-nobody" not in seen
    if real.agent.sandboxed:
        assert "the portal's own secret" not in seen


def test_no_instruction_of_the_program_asks_for_a_trailer_in_commits(real: Bench) -> None:
    """The portal makes the commits and the pull requests, in its own words."""
    assert real.start("no-questions").ending is Ending.FINISHED
    assert real.server is not None
    sent = json.dumps(real.server.requests)
    assert "Co-Authored-By" not in sent and "Generated with" not in sent


def test_a_stop_that_comes_before_the_process_exists_counts(tmp_path: Path) -> None:
    ticked = threading.Event()

    class SlowSandbox(Sandbox):
        def command(self, *arguments: object, **more: object):  # type: ignore[no-untyped-def]
            assert ticked.wait(30)
            return super().command(*arguments, **more)  # type: ignore[arg-type]

    with real_bench(tmp_path, SlowSandbox(None)) as bench:

        def stop() -> None:
            ticked.set()
            raise Stop("enough")

        bench.recorder.looked = stop
        with pytest.raises(Stop):
            bench.start("no-questions")
        assert bench.server is not None
        assert bench.server.requests == []
    assert marked_processes(bench.workspace) == []
