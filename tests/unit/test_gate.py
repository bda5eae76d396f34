"""The gate: which tool calls ask a human, and what becomes of them (H3, H13)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.gate.hook import NO_QUESTION, asks_about_goal, decide, questions_in
from tasks_app.agent.run_setup import install_gate

ASKS = [
    # Plain, in every kind of quotes.
    ('cat-herder ask "A?"', ["A?"]),
    ("cat-herder ask 'A?'", ["A?"]),
    ("cat-herder ask A or B?", ["A or B?"]),
    ('  cat-herder   ask   "A?"  ', ["A?"]),
    ('"cat-herder" ask "A?"', ["A?"]),
    ('cat-herder ask -- "A?"', ["A?"]),
    ('cat-herder ask "Say \\"yes\\" or no?"', ['Say "yes" or no?']),
    ('cat-herder ask "it\'s right?"', ["it's right?"]),
    ('cat-herder ask "a; b && c | d (e) > f?"', ["a; b && c | d (e) > f?"]),
    ('cat-herder ask "50 % of #1? Ünïcode ☃"', ["50 % of #1? Ünïcode ☃"]),
    # Over several lines.
    ('cat-herder ask "one\ntwo?"', ["one\ntwo?"]),
    ('cat-herder ask \\\n  "A?"', ["A?"]),
    ('cat-herder ask "A?"\ncat-herder ask "B?"', ["A?", "B?"]),
    (
        'cat-herder ask "$(cat <<\'EOF\'\nWhat\'s "it"?\n\n- this\n- that\nEOF\n)"',
        ['What\'s "it"?\n\n- this\n- that'],
    ),
    # Beside other commands.
    ('cd src && cat-herder ask "A?"', ["A?"]),
    ('cat-herder ask "A?" && rm -rf build', ["A?"]),
    ('cat-herder ask "A?";ls', ["A?"]),
    ('make || cat-herder ask "A?"', ["A?"]),
    ("echo 'a\nb'; cat-herder ask 'A?'", ["A?"]),
    ('cat-herder ask "A?"; cat-herder ask "B?"', ["A?", "B?"]),
    ('cat-herder ask "A?" 2>&1', ["A?"]),
    ('cat-herder ask "A?" 2>/dev/null', ["A?"]),
    ('cat-herder ask "A?" > answer.txt', ["A?"]),
    ('cat-herder ask "A?" | tee log', ["A?"]),
    ('(cat-herder ask "A?")', ["A?"]),
    ('{ cat-herder ask "A?"; }', ["A?"]),
    # Called by another name or through another program.
    ('/run/inside/bin/cat-herder ask "A?"', ["A?"]),
    ('./cat-herder ask "A?"', ["A?"]),
    ('bash cat-herder ask "A?"', ["A?"]),
    ('LANG=C cat-herder ask "A?"', ["A?"]),
    ('env A=1 B="2 3" cat-herder ask "A?"', ["A?"]),
    ('timeout 60 cat-herder ask "A?"', ["A?"]),
    ('timeout -k 5s 2m cat-herder ask "A?"', ["A?"]),
    ('nohup cat-herder ask "A?" &', ["A?"]),
    ("bash -c 'cat-herder ask \"A?\"'", ["A?"]),
    ("sh -lc \"cd src; cat-herder ask 'A?'\"", ["A?"]),
    # Where its answer is wanted.
    ('answer=$(cat-herder ask "A?")', ["A?"]),
    ('answer="$(cat-herder ask "Which one?")"', ["Which one?"]),
    ("answer=`cat-herder ask 'A?'`", ["A?"]),
    ("echo \"$(cat-herder ask 'A?')\"", ["A?"]),
    ('if cat-herder ask "A?"; then make; fi', ["A?"]),
    ('if true; then cat-herder ask "A?"; fi', ["A?"]),
    ('while ! cat-herder ask "A?"; do :; done', ["A?"]),
    ('case x in x) cat-herder ask "A?";; esac', ["A?"]),
    ('diff <(cat-herder ask "A?") expected', ["A?"]),
    # Not to be split into words.
    ('cat-herder ask "A?', ["A?"]),
    ("cat-herder ask it's A?", ["it's A?"]),
    ('cd src; cat-herder ask "A?', ["A?"]),
    # Nothing asked, but a call that must not simply run.
    ("cat-herder ask", [NO_QUESTION]),
    ('cat-herder ask ""', [NO_QUESTION]),
    ('cat-herder ask "  "', [NO_QUESTION]),
    ("cat-herder ask && make", [NO_QUESTION]),
    ("cat-herder ask <<EOF\nA?\nEOF", [NO_QUESTION]),
    ('cat-herder ask "$(cat <<EOF\nEOF\n)"', [NO_QUESTION]),
]
NO_ASKS = [
    "",
    "ls",
    "cat-herder",
    "cat-herder --help",
    "cat-herder asking x",
    "cat-herder answer x",
    "my-cat-herder ask x",
    "cat-herder.py ask x",
    "cat herder ask x",
    'echo "cat-herder ask"',
    "echo cat-herder ask",
    "grep cat-herder ask.txt",
    "grep -rn 'cat-herder ask' .",
    "# cat-herder ask x",
    "git commit -m 'Use cat-herder ask \"…\"'",
    "cat > README.md <<EOF\ncat-herder ask x\nEOF",
    "cat > README.md <<-'END OF'\n",
    "cat > README.md <<'EOF'\nIt's easy:\ncat-herder ask \"x\"\nEOF\nls",
]


@pytest.mark.parametrize(("command", "questions"), ASKS)
def test_questions_are_found_to_the_letter(command: str, questions: list[str]) -> None:
    assert questions_in(command) == questions


@pytest.mark.parametrize("command", NO_ASKS)
def test_what_only_mentions_the_command_does_not_ask(command: str) -> None:
    assert questions_in(command) == []


def bash(command: Any, identity: str = "toolu_1") -> dict[str, Any]:
    return {"tool_use_id": identity, "tool_name": "Bash", "tool_input": {"command": command}}


ASKED = {"tool_use_id": "toolu_1", "tool_name": "AskUserQuestion", "tool_input": {"questions": []}}
ALLOW = {"permissionDecision": "allow", "updatedInput": {"command": "cat answer"}}
DEFER = {"permissionDecision": "defer"}


class TestDecide:
    @pytest.mark.parametrize("call", [ASKED, bash('cat-herder ask "A?"')])
    def test_an_ask_without_a_decision_waits(self, call: dict[str, Any]) -> None:
        assert decide(call, {}) == DEFER

    @pytest.mark.parametrize("call", [ASKED, bash('cat-herder ask "A?"')])
    def test_an_ask_with_a_decision_gets_it(self, call: dict[str, Any]) -> None:
        assert decide(call, {"toolu_1": ALLOW}) == ALLOW

    def test_a_decision_for_another_call_is_not_taken(self) -> None:
        """R1"""
        assert decide(ASKED, {"toolu_2": ALLOW}) == DEFER

    @pytest.mark.parametrize(
        "call",
        [
            bash("make"),
            bash(None),
            bash(7),
            {"tool_name": "Bash", "tool_input": {}},
            {"tool_name": "Read"},
            {},
        ],
    )
    def test_other_calls_are_left_to_the_ordinary_permissions(self, call: dict[str, Any]) -> None:
        assert decide(call, {"toolu_2": ALLOW}) is None


class TestTheProgram:
    """As the agent runs it: isolated, with the standard library alone."""

    @pytest.fixture
    def run_dir(self, tmp_path: Path) -> Path:
        orders = {"may_ask": True, "step": "plan", "workspace": str(tmp_path), "allow_write": None}
        (tmp_path / "orders.json").write_text(json.dumps(orders))
        (tmp_path / "permissions.json").write_text("{}")
        install_gate(tmp_path)
        return tmp_path

    def ask(self, run_dir: Path, call: str, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-ISB", *flags, str(run_dir / "gate.pyc"), str(run_dir)]
        return subprocess.run(
            command, input=call, capture_output=True, text=True, check=False, env={}, timeout=30
        )

    def test_it_prints_the_decision_in_the_words_of_the_agent(self, run_dir: Path) -> None:
        (run_dir / "permissions.json").write_text(json.dumps({"toolu_1": ALLOW}))
        done = self.ask(run_dir, json.dumps(ASKED))
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == {"hookSpecificOutput": {"hookEventName": "PreToolUse", **ALLOW}}

    def test_it_loads_little_and_compiles_nothing(self, run_dir: Path) -> None:
        """F: each call that it judges waits for it."""
        loaded = self.ask(run_dir, json.dumps(ASKED), "-v").stderr
        for slow in ("typing", "dataclasses", "inspect", "pathlib", "tasks_app.agent.gate.patterns"):
            assert f"import '{slow}'" not in loaded
        orders = json.loads((run_dir / "orders.json").read_text())
        (run_dir / "orders.json").write_text(json.dumps({**orders, "ask_before": ["Bash(git push*)"]}))
        loaded = self.ask(run_dir, json.dumps(bash("npm test")), "-v").stderr
        for part in ("patterns", "possible_commands", "shell_reader"):
            assert f"code object from '{run_dir}/tasks_app/agent/gate/{part}.pyc'" in loaded

    def test_it_judges_addresses_and_shell_lines_with_what_lies_beside_it(self, run_dir: Path) -> None:
        orders = json.loads((run_dir / "orders.json").read_text())
        rules = ["WebFetch(http://127.0.0.1/*)", "Bash(git push*)"]
        (run_dir / "orders.json").write_text(json.dumps({**orders, "ask_before": rules}))
        fetch = {"tool_name": "WebFetch", "tool_input": {"url": "http://[::ffff:7f00:1]/x"}}
        for call in (fetch, bash("$(which git) push")):
            done = self.ask(run_dir, json.dumps(call))
            assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "defer"
        assert self.ask(run_dir, json.dumps(bash("npm test"))).stdout == ""

    def test_it_is_silent_about_other_calls(self, run_dir: Path) -> None:
        done = self.ask(run_dir, json.dumps(bash("make")))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_an_answer_in_any_script_passes(self, run_dir: Path) -> None:
        permission = {"permissionDecision": "allow", "updatedInput": {"answers": {"Größe?": "☃ 猫\n\u2028"}}}
        (run_dir / "permissions.json").write_text(json.dumps({"toolu_1": permission}, ensure_ascii=False))
        done = self.ask(run_dir, json.dumps(ASKED, ensure_ascii=False))
        assert json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"] == permission["updatedInput"]

    @pytest.mark.parametrize("file", ["permissions.json", "orders.json"])
    @pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"yes"', None])
    def test_a_broken_order_blocks_the_call(self, run_dir: Path, file: str, text: str | None) -> None:
        (run_dir / file).unlink() if text is None else (run_dir / file).write_text(text)
        done = self.ask(run_dir, json.dumps(ASKED))
        assert done.returncode == 2 and done.stdout == ""
        assert "gate of this run is broken" in done.stderr and "Traceback" not in done.stderr

    @pytest.mark.parametrize("call", ["", "no json", "[]", '{"tool_name": "Bash", "tool_input": null}'])
    def test_a_broken_call_is_blocked(self, run_dir: Path, call: str) -> None:
        assert self.ask(run_dir, call).returncode == 2


@pytest.mark.parametrize(
    ("command", "questions", "about_goal"),
    [
        ('cat-herder ask --about goal "For whom?"', ["For whom?"], True),
        ('cat-herder ask --about=goal "For whom?"', ["For whom?"], True),
        ('cat-herder ask "For whom?" --about goal', ["For whom?"], True),
        ('cat-herder ask --about Goal -- "-1 or 0?"', ["-1 or 0?"], True),
        ('cat-herder ask "A?"; cat-herder ask --about goal "B?"', ["A?", "B?"], True),
        ("cat-herder ask --about goal it's A?", ["it's A?"], True),
        ("cat-herder ask --about goal", [NO_QUESTION], True),
        ('cat-herder ask "About the goal?"', ["About the goal?"], False),
        ('cat-herder ask "What is --about goal?"', ["What is --about goal?"], False),
        ('cat-herder ask --about style "Tabs?"', ["--about style Tabs?"], False),
        ("ls --about goal", [], False),
    ],
)
def test_the_command_says_what_a_question_is_about(
    command: str, questions: list[str], about_goal: bool
) -> None:
    assert questions_in(command) == questions
    assert asks_about_goal(command) is about_goal
