"""`cat-herder ask` as a program: what it does where no gate replaced it (H3)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent import ask
from tasks_app.agent.run_setup import write_decisions
from tasks_app.agent.spools import (
    NotDone,
    UnfitDecision,
    reply_folder,
    said_folder,
    spool_folder,
    spooled_asks,
    spooled_replies,
    spooled_said,
)
from tasks_app.core.types import KnownDecision

INSTALLED = Path(sys.executable).with_name("cat-herder")


def cat_herder(*words: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As it is carried into the sandbox: a file of its own, isolated."""
    env = {"CAT_HERDER_ASKED": str(spool_folder(home))} if home else {}
    command = [sys.executable, "-ISB", ask.__file__, *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_outside_a_run_it_explains_itself_and_exits_2() -> None:
    done = cat_herder("ask", "Which one?")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", ask.OUTSIDE.format(command="ask"))
    assert "cat-herder run_task" in done.stderr


def test_the_installed_command_does_the_same(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [INSTALLED, "ask", "Which one?"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", ask.OUTSIDE.format(command="ask"))


@pytest.mark.parametrize("words", [(), ("answer", "x"), ("ask",)])
def test_wrong_use_exits_2_and_shows_the_right_one(words: tuple[str, ...], tmp_path: Path) -> None:
    done = cat_herder(*words, home=tmp_path)
    assert done.returncode == 2 and "usage: cat-herder" in done.stderr
    assert spooled_asks(tmp_path) == []


def test_an_empty_question_is_wrong_use(tmp_path: Path) -> None:
    done = cat_herder("ask", " ", home=tmp_path)
    assert done.returncode == 2 and "the question is empty" in done.stderr
    assert spooled_asks(tmp_path) == []


@pytest.mark.parametrize("question", ["Which one?", "@/etc/passwd", '"; rm -rf /', "two\nlines", "☃ Größe"])
def test_within_a_run_the_question_is_noted_to_the_letter(question: str, tmp_path: Path) -> None:
    done = cat_herder("ask", question, home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, ask.NOT_PAUSED, "")
    (noted,) = spooled_asks(tmp_path)
    assert [item.question for item in noted.items] == [question]


def test_words_without_quotes_are_one_question(tmp_path: Path) -> None:
    cat_herder("ask", "Which", "one?", home=tmp_path)
    assert spooled_asks(tmp_path)[0].items[0].question == "Which one?"


def test_several_questions_are_all_kept_in_order(tmp_path: Path) -> None:
    """H3: no question is ever lost."""
    for number in range(3):
        cat_herder("ask", f"Question {number}?", home=tmp_path)
    assert [noted.items[0].question for noted in spooled_asks(tmp_path)] == [
        f"Question {n}?" for n in range(3)
    ]


def test_only_whole_notes_have_the_name_of_one(tmp_path: Path) -> None:
    cat_herder("ask", "Which one?", home=tmp_path)
    (note,) = spool_folder(tmp_path).iterdir()
    assert note.suffix == ".json" and json.loads(note.read_text()) == {"question": "Which one?"}


def _reply(home: Path, *words: str, threads: str = "1 12") -> subprocess.CompletedProcess[str]:
    env = {"CAT_HERDER_REPLIES": str(reply_folder(home)), "CAT_HERDER_THREADS": threads}
    command = [sys.executable, "-ISB", ask.__file__, "reply", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", ["Done.", "two\nlines", '"; rm -rf /', "☃ Größe"])
def test_v4_a_reply_is_noted_to_the_letter(text: str, tmp_path: Path) -> None:
    done = _reply(tmp_path, "12", text)
    assert (done.returncode, done.stdout) == (0, "Your reply to thread 12 was noted.\n")
    (noted,) = spooled_replies(tmp_path).found
    assert (noted.number, noted.text) == (12, text)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("7", "x"), "there is no thread 7; the threads are 1, 12"),
        (("1", " "), "the reply is empty"),
        (("one", "x"), "invalid int value"),
        (("1",), "required: text"),
    ],
)
def test_v4_a_reply_that_cannot_be_delivered_is_refused(
    words: tuple[str, ...], fault: str, tmp_path: Path
) -> None:
    done = _reply(tmp_path, *words)
    assert done.returncode == 2 and fault in done.stderr
    assert not spooled_replies(tmp_path).found


def test_v4_outside_a_run_reply_explains_itself() -> None:
    done = cat_herder("reply", "1", "x")
    assert (done.returncode, done.stderr) == (2, ask.OUTSIDE.format(command="reply"))


def test_v4_in_a_run_without_a_review_reply_says_so(tmp_path: Path) -> None:
    env = {"CAT_HERDER_SAID": str(tmp_path)}
    command = [sys.executable, "-ISB", ask.__file__, "reply", "1", "x"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, ask.NO_REVIEW)


def test_v4_files_that_are_known_are_not_read_again(tmp_path: Path) -> None:
    """The agent may write many large files, and the folder is looked at each second."""
    _reply(tmp_path, "1", "Done.")
    (reply_folder(tmp_path) / "no-json.json").write_text("[")
    first = spooled_replies(tmp_path)
    assert len(first.found) == 1 and len(first.keys) == 2
    again = spooled_replies(tmp_path, known=first.keys)
    assert (again.found, again.keys) == ([], frozenset())


def test_a_note_says_whether_it_is_about_the_goal(tmp_path: Path) -> None:
    cat_herder("ask", "--about", "goal", "For whom?", home=tmp_path)
    (noted,) = spooled_asks(tmp_path)
    assert noted.about_goal and [item.question for item in noted.items] == ["For whom?"]


class TestDecisions:
    """D3."""

    KNOWN = (
        KnownDecision(3, "Round half up.", "As the bank does.", "ann", "3 May 2026", "src/billing/**"),
        KnownDecision(17, "Money is stored in cents.", decided_by="bob", day="4 May 2026"),
    )

    NONE = "No decision with these words was in force when this run began.\n"

    @pytest.fixture
    def env(self, tmp_path: Path) -> dict[str, str]:
        known = tmp_path / "decisions.json"
        write_decisions(known, self.KNOWN)
        return {"CAT_HERDER_DECISIONS": str(known), "CAT_HERDER_SAID": str(said_folder(tmp_path))}

    def run(self, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-ISB", ask.__file__, *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def test_all_are_shown_without_words(self, env: dict[str, str]) -> None:
        done = self.run(env, "decisions")
        assert (done.returncode, done.stdout.splitlines()) == (
            0,
            [
                "D-3 (ann, 3 May 2026, src/billing/**): Round half up.",
                "    Reason: As the bank does.",
                "D-17 (bob, 4 May 2026): Money is stored in cents.",
            ],
        )

    def test_words_find_those_with_most_of_them(self, env: dict[str, str]) -> None:
        assert self.run(env, "decisions", "cents money").stdout.startswith("D-17")
        assert "D-17" not in self.run(env, "decisions", "BANK").stdout
        assert self.run(env, "decisions", "colour").stdout == self.NONE

    def test_a_whole_question_finds_those_with_most_of_the_words_that_mean_something(
        self, env: dict[str, str]
    ) -> None:
        shown = self.run(env, "decisions", "Should it be stored in the table as cents?").stdout
        assert shown.startswith("D-17") and "D-3" not in shown
        assert self.run(env, "decisions", "Is it?").stdout == self.NONE

    def test_a_label_finds_that_decision_only(self, env: dict[str, str]) -> None:
        assert self.run(env, "decisions", "d-17").stdout.startswith("D-17 (")
        assert self.run(env, "decisions", "D-1").stdout == (
            "No decision D-1 was in force when this run began.\n"
        )

    def test_a_decision_that_was_replaced_is_answered_with_the_one_that_holds(self, tmp_path: Path) -> None:
        known = tmp_path / "decisions.json"
        write_decisions(known, [KnownDecision(3, "New.", "One.\n\nTwo.", "ann", replaces="D-1")])
        env = {"CAT_HERDER_DECISIONS": str(known)}
        assert self.run(env, "decisions", "d-1").stdout == "D-1 does not hold any more. D-3 replaces it.\n"
        assert self.run(env, "decisions").stdout.splitlines() == [
            "D-3 (ann, replaces D-1): New.", "    Reason: One.", "    ", "    Two.",
        ]  # fmt: skip

    def test_d3_an_exception_and_its_decision_name_each_other(self, tmp_path: Path) -> None:
        one = KnownDecision(1, "Cents.", decided_by="ann", exceptions="D-2 (docs/**)")
        other = KnownDecision(2, "Euros.", decided_by="ann", where="docs/**", exception_to="D-1")
        write_decisions(tmp_path / "known.json", [one, other])
        env = {"CAT_HERDER_DECISIONS": str(tmp_path / "known.json")}
        assert self.run(env, "decisions").stdout.splitlines() == [
            "D-1 (ann): Cents.", "    Except: D-2 (docs/**)", "D-2 (ann, docs/**, exception to D-1): Euros.",
        ]  # fmt: skip

    def test_whoever_may_ask_is_told_so(self, env: dict[str, str], tmp_path: Path) -> None:
        done = self.run({**env, "CAT_HERDER_ASKED": str(tmp_path)}, "unfit", "D-17", "In yen.")
        assert "If you cannot go on, ask." in done.stdout

    def test_unfit_names_what_replaced_a_decision(self, env: dict[str, str], tmp_path: Path) -> None:
        known = tmp_path / "known.json"
        newer = {"number": 3, "label": "D-3", "statement": "New.", "replaces": "D-1"}
        known.write_text(json.dumps({"decisions": [newer], "stop_words": []}))
        done = self.run({**env, "CAT_HERDER_DECISIONS": str(known)}, "unfit", "d-1", "It is old.")
        assert done.returncode == 2 and "D-3 replaces it" in done.stderr
        assert not spooled_said(tmp_path).found

    def test_unfit_is_written_to_its_folder(self, env: dict[str, str], tmp_path: Path) -> None:
        done = self.run(env, "unfit", "d-17", "Invoices are", "in yen.")
        assert done.returncode == 0 and "A human will look at D-17" in done.stdout
        assert "ask" not in done.stdout, "nobody can be asked in this run (H13)"
        assert spooled_said(tmp_path).found == [UnfitDecision(17, "Invoices are in yen.")]

    @pytest.mark.parametrize("words", [("D-5", "x"), ("D-17", " "), ("D-17",)])
    def test_unfit_needs_a_known_decision_and_a_reason(
        self, env: dict[str, str], tmp_path: Path, words: tuple[str, ...]
    ) -> None:
        assert self.run(env, "unfit", *words).returncode == 2
        assert not spooled_said(tmp_path).found

    def test_without_decisions_it_says_so(self) -> None:
        """It is an answer and no error: a model would take one for its own fault."""
        done = self.run({"CAT_HERDER_SAID": "/x"}, "decisions", "rounding")
        assert (done.returncode, done.stdout) == (0, ask.NO_DECISIONS)
        assert self.run({"CAT_HERDER_SAID": "/x"}, "unfit", "D-1", "x").returncode == 2
        assert self.run({}, "unfit", "D-1", "x").stderr == ask.OUTSIDE.format(command="unfit")


class TestNotDone:
    def run(self, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-ISB", ask.__file__, "not-done", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def test_the_reason_is_written_to_its_folder(self, tmp_path: Path) -> None:
        done = self.run({"CAT_HERDER_SAID": str(said_folder(tmp_path))}, "There is", "no such table.")
        assert done.returncode == 0 and "End your turn" in done.stdout
        assert spooled_said(tmp_path).found == [NotDone("There is no such table.")]

    def test_it_needs_a_reason_and_a_task(self, tmp_path: Path) -> None:
        env = {"CAT_HERDER_SAID": str(said_folder(tmp_path))}
        assert {self.run(env, *words).returncode for words in ((), (" ",))} == {2}
        assert not spooled_said(tmp_path).found
        assert self.run({}, "x").stderr == ask.OUTSIDE.format(command="not-done")


@pytest.mark.parametrize(
    ("read", "folder", "content", "limit"),
    [
        (spooled_said, "said", {"decision": 1, "why": "In yen."}, 100),
        (spooled_replies, "replies", {"thread": 1, "text": "Done."}, 1_000),
    ],
)
def test_d3_files_that_the_agent_deleted_count_towards_the_limit_of_its_run(
    tmp_path: Path, read: Any, folder: str, content: dict[str, object], limit: int
) -> None:
    """Else an agent that writes new ones each second fills the database."""
    known: set[str] = set()
    for number in range(limit + 20):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{number}.json").write_text(json.dumps(content))
        if number % 20 == 19:
            known |= read(tmp_path, known=known).keys
            shutil.rmtree(tmp_path / folder)
    assert len(known) == limit
