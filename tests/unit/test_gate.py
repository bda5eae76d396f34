"""The gate: which tool calls ask a human, and what becomes of them (H3, H13)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.approvals import approval_of
from tasks_app.agent.gate.hook import (
    BY_SUBAGENT,
    LONGEST_PLAN,
    OTHER_PLAN,
    asks_about_goal,
    asks_unreadably,
    decide,
    questions_in,
    runs_part_of_note,
)
from tasks_app.agent.questions import ask_from_call
from tasks_app.agent.run_setup import install_gate
from tasks_app.core.text import visible

ASKS = [
    # Plain, in every kind of quotes.
    ('cat-herder ask "A?"', ["A?"]),
    ("cat-herder ask 'A?'", ["A?"]),
    ("cat-herder ask A or B", ["A or B"]),
    ("cat-herder ask Which one\\?", ["Which one?"]),
    ('  cat-herder   ask   "A?"  \n', ["A?"]),
    ('"cat-herder" ask "A?"', ["A?"]),
    ('cat-herder ask -- "A?"', ["A?"]),
    ("cat-herder ask -- --force or not", ["--force or not"]),
    ('cat-herder ask "- this\n- that?"', ["- this\n- that?"]),
    ('cat-herder ask "Say \\"yes\\" or no?"', ['Say "yes" or no?']),
    ('cat-herder ask "it\'s right?"', ["it's right?"]),
    ("cat-herder ask 'it'\\''s right?'", ["it's right?"]),
    ('cat-herder ask "a; b && c | d (e) > f?"', ["a; b && c | d (e) > f?"]),
    ('cat-herder ask "50 % of #1? Ünïcode ☃"', ["50 % of #1? Ünïcode ☃"]),
    ("cat-herder ask 'What is $HOME, `id` or $(id)?'", ["What is $HOME, `id` or $(id)?"]),
    ('cat-herder ask "\\$5 or \\`5\\`?"', ["$5 or `5`?"]),
    ('cat-herder ask "Match \\d+ or \\\\d?"', ["Match \\d+ or \\d?"]),
    ('cat-herder ask "*.py, ~, {a,b}, [x] or !?"', ["*.py, ~, {a,b}, [x] or !?"]),
    # Over several lines.
    ('cat-herder ask "one\ntwo?"', ["one\ntwo?"]),
    ('cat-herder ask "one \\\ntwo?"', ["one two?"]),
    ('cat-herder ask \\\n  "A?"', ["A?"]),
    ('cat-herder ask "A?"\ncat-herder ask "B?"', ["A?", "B?"]),
    # Beside other commands that are written out.
    ('cd src && cat-herder ask "A?"', ["A?"]),
    ('cat-herder ask "A?" && rm -rf build', ["A?"]),
    ('cat-herder ask "A?";ls', ["A?"]),
    ('make || cat-herder ask "A?"', ["A?"]),
    ("echo 'a\nb'; cat-herder ask 'A?'", ["A?"]),
    ('cat-herder ask "A?"; cat-herder ask "B?"', ["A?", "B?"]),
    ('cat-herder ask "A?"; cat-herder ask "A?"', ["A?"]),
    # By its path.
    ('/run/inside/bin/cat-herder ask "A?"', ["A?"]),
    ('./cat-herder ask "A?"', ["A?"]),
]
#: Each may ask, and only the shell would know what.
NOT_WRITTEN_OUT = [
    # Expansions and substitutions.
    'cat-herder ask "$(cat q.txt)"',
    "cat-herder ask `cat q.txt`",
    "cat-herder ask $Q",
    'cat-herder ask "Is $Q right?"',
    'cat-herder ask "${Q:-A?}"',
    'Q="A?"; cat-herder ask "$Q"',
    'cat-herder ask "Is it $((1 + 1))?"',
    "cat-herder ask $'A?\\n'",
    'cat-herder ask $"A?"',
    "cat-herder ask A or B?",
    "cat-herder ask *.py",
    "cat-herder ask {a,b}",
    "cat-herder ask ~/src",
    "cat-herder ask <(cat q.txt)",
    'cat-herder ask "A?" "$(id)"',
    'cat-herder ask "A?"; cat-herder ask "$Q"',
    'echo $HOME; cat-herder ask "A?"',
    'cat-herder ask "$(cat <<\'EOF\'\nWhat\'s "it"?\nEOF\n)"',
    # Its input, which the command does not even read.
    "echo A | cat-herder ask",
    "echo A | xargs cat-herder ask",
    "cat-herder ask <<EOF\nA?\nEOF",
    'cat-herder ask <<< "A?"',
    "cat-herder ask < q.txt",
    # Options.
    'cat-herder ask --about style "Tabs?"',
    'cat-herder ask --file q.txt "A?"',
    "cat-herder ask -f q.txt",
    'cat-herder ask --abo goal "A?"',
    "cat-herder ask --about goal",
    "cat-herder ask A --force",
    # Nothing.
    "cat-herder ask",
    'cat-herder ask ""',
    'cat-herder ask "  "',
    "cat-herder ask && make",
    'cat-herder ask "$(cat <<EOF\nEOF\n)"',
    # Redirections, pipes, groups, comments.
    'cat-herder ask "A?" 2>&1',
    'cat-herder ask "A?" > answer.txt',
    'cat-herder ask "A?" | tee log',
    'cat-herder ask "A?" &',
    'cat-herder ask "A?" # this one',
    '(cat-herder ask "A?")',
    '{ cat-herder ask "A?"; }',
    'if true; then cat-herder ask "A?"; fi',
    'while ! cat-herder ask "A?"; do :; done',
    'case x in x) cat-herder ask "A?";; esac',
    'ask() { cat-herder ask "$1"; }; ask "A?"',
    'diff <(cat-herder ask "A?") expected',
    'answer=$(cat-herder ask "A?")',
    "answer=`cat-herder ask 'A?'`",
    "echo \"$(cat-herder ask 'A?')\"",
    # Through another program.
    'bash cat-herder ask "A?"',
    'LANG=C cat-herder ask "A?"',
    'env A=1 B="2 3" cat-herder ask "A?"',
    'command cat-herder ask "A?"',
    'timeout -k 5s 2m cat-herder ask "A?"',
    'nohup cat-herder ask "A?" &',
    "bash -c 'cat-herder ask \"A?\"'",
    "sh -lc \"cd src; cat-herder ask 'A?'\"",
    'eval "cat-herder ask A"',
    "bash <<'EOF'\ncat-herder ask \"A?\"\nEOF",
    # Not to be split into words.
    'cat-herder ask "A?',
    "cat-herder ask it's A?",
    'cd src; cat-herder ask "A?',
    'cat-herder ask "A\0B?"',
]
NO_ASKS = [
    "",
    "ls",
    "cat-herder",
    "cat-herder --help",
    "cat-herder ask --help",
    'cat-herder ask -h "A?"',
    "cat-herder asking x",
    "cat-herder answer x",
    "my-cat-herder ask x",
    "cat-herder.py ask x",
    "cat herder ask x",
    'echo "cat-herder ask"',
    "echo cat-herder ask",
    "grep cat-herder ask.txt",
    "grep -rn 'cat-herder ask' .",
    "find . -name '*.md' | xargs grep -n 'cat-herder ask'",
    'find . -exec grep -l "cat-herder ask" {} +',
    "sudo grep -rn 'cat-herder ask x' /etc",
    "env LANG=C git log --grep='cat-herder ask'",
    "bash tools/search.sh 'cat-herder ask x'",
    "tar cf x.tar docs 'cat-herder ask'",
    "# cat-herder ask x",
    "git commit -m 'Use cat-herder ask \"…\"'",
    "cat > README.md <<EOF\ncat-herder ask x\nEOF",
    "cat > README.md <<-'END OF'\n",
    "cat > README.md <<'EOF'\nIt's easy:\ncat-herder ask \"x\"\nEOF\nls",
]


@pytest.mark.parametrize(("command", "questions"), ASKS)
def test_questions_are_found_to_the_letter(command: str, questions: list[str]) -> None:
    assert questions_in(command) == questions


@pytest.mark.parametrize("command", NOT_WRITTEN_OUT)
def test_a_question_that_only_the_shell_knows_is_refused(command: str) -> None:
    """H3, D5: no text but the agent's own words is asked, so none is compared or answered by a decision."""
    assert questions_in(command) == []
    assert asks_unreadably(command)
    refusal = decide(bash(command), {})
    assert refusal is not None and refusal["permissionDecision"] == "deny"
    assert ask_from_call("toolu_1", "Bash", {"command": command}) is None


@pytest.mark.parametrize(("command", "questions"), ASKS)
def test_a_question_that_is_written_out_is_what_the_shell_would_pass(
    command: str, questions: list[str], tmp_path: Path
) -> None:
    """H3: the card has the words that the command would have got."""
    script = tmp_path / "cat-herder"
    script.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    script.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    line = re.sub(r"(\./|/run/inside/bin/)cat-herder", "cat-herder", command)
    done = subprocess.run(
        ["bash", "-c", f"cd() {{ :; }}; rm() {{ :; }}; make() {{ false; }}; {line}"],
        capture_output=True,
        text=True,
        env=path,
        cwd=tmp_path,
        check=False,
    )
    passed = [json.loads(one)[1:] for one in done.stdout.split("\n") if one.startswith('["ask"')]
    said = [" ".join(words[words[:1] == ["--"] :]) for words in passed]
    assert list(dict.fromkeys(said)) == questions


@pytest.mark.parametrize("command", NO_ASKS)
def test_what_only_mentions_the_command_does_not_ask(command: str) -> None:
    assert questions_in(command) == []
    assert not asks_unreadably(command)


@pytest.mark.parametrize(
    ("command", "runs_them"),
    [
        ('cat-herder unfit D-2 "`--language xx` is refused"', True),
        ("cat-herder not-done it needs `sudo`", True),
        ('cd x && cat-herder reply 3 "It\'s `f()` now"', True),
        ("cat-herder unfit D-2 '`--language xx` is refused'", False),
        ('cat-herder reply 3 "\\`f()\\` is gone"', False),
        ("cat-herder reply 3 'It'\\''s `f()` now'", False),
        ("cat-herder reply 3 \"$(cat <<'EOF'\n`f()` is gone\nEOF\n)\"", False),
        ("echo `date`; cat-herder decisions x", False),
    ],
)
def test_what_an_agent_notes_for_people_loses_no_code_to_the_shell(command: str, runs_them: bool) -> None:
    """D5, V4: of "`f` is gone" people would read "is gone"."""
    assert runs_part_of_note(command) == runs_them


def bash(command: Any, identity: str = "toolu_1") -> dict[str, Any]:
    return {"tool_use_id": identity, "tool_name": "Bash", "tool_input": {"command": command}}


def file_call(tool: str) -> dict[str, Any]:
    return {"tool_name": tool, "tool_input": {"file_path": "a.sql"}}


ASKED = {
    "tool_use_id": "toolu_1",
    "tool_name": "AskUserQuestion",
    "tool_input": {"questions": [{"question": "A?", "options": [{"label": "B"}, {"label": "C"}]}]},
}
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

    @pytest.mark.parametrize("asked", [ASKED, {**ASKED, "tool_name": "WebFetch", "tool_input": {}}])
    def test_a_sub_agent_cannot_wait(self, run_dir: Path, asked: dict[str, Any]) -> None:
        """R1: deferred, its call would end it without a word to the agent."""
        orders = json.loads((run_dir / "orders.json").read_text())
        (run_dir / "orders.json").write_text(json.dumps({**orders, "ask_before": ["WebFetch"]}))
        said = {}
        for agent in ("", "a1"):
            done = self.ask(run_dir, json.dumps({**asked, **({"agent_id": agent} if agent else {})}))
            said[agent] = json.loads(done.stdout)["hookSpecificOutput"]
        assert said[""]["permissionDecision"] == "defer"
        assert said["a1"]["permissionDecision"] == "deny"
        assert said["a1"]["permissionDecisionReason"] == BY_SUBAGENT

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

    @pytest.mark.parametrize(
        ("more", "call", "permission"),
        [
            ({"allowed_tools": ["Read"]}, bash("git tag v1"), "deny"),
            ({"allowed_tools": ["Bash(npm test:*)"]}, bash("git tag v1"), "deny"),
            ({"allowed_tools": ["Bash(git tag:*)"]}, bash("git tag v1"), "defer"),
            ({"allowed_tools": ["Bash"]}, bash("git tag v1"), "defer"),
            ({"allowed_tools": None}, bash("git tag v1"), "defer"),
            ({"allowed_tools": ["Read"]}, bash("cat-herder decisions 'git tag'"), "defer"),
            ({"allowed_tools": ["Read"]}, file_call("Write"), "deny"),
            ({"allowed_tools": ["Edit"]}, file_call("Write"), "defer"),
            ({"plans_first": True}, bash("git tag v1"), "deny"),
            ({"plans_first": True}, file_call("Read"), "defer"),
            ({"allowed_tools": ["Read"]}, file_call("Read"), "defer"),
        ],
    )
    def test_h7_nobody_is_asked_about_a_call_that_the_step_refuses(
        self, run_dir: Path, more: dict[str, Any], call: dict[str, Any], permission: str
    ) -> None:
        orders = json.loads((run_dir / "orders.json").read_text())
        rules = ["Bash(*git tag*)", "Write(**/*.sql)", "Read(*.sql)"]
        (run_dir / "orders.json").write_text(
            json.dumps({**orders, "home": f"{run_dir}/home", "ask_before": rules, **more})
        )
        said = json.loads(self.ask(run_dir, json.dumps(call)).stdout)["hookSpecificOutput"]
        assert said["permissionDecision"] == permission

    def test_a_plan_that_is_too_long_to_be_reviewed_whole_is_shown_to_nobody(self, run_dir: Path) -> None:
        orders = json.loads((run_dir / "orders.json").read_text())
        (run_dir / "orders.json").write_text(json.dumps({**orders, "plans": f"{run_dir}/plans"}))
        said = {}
        for size in (LONGEST_PLAN, LONGEST_PLAN + 1):
            call = {"tool_name": "ExitPlanMode", "tool_input": {"plan": "x" * size}, "tool_use_id": "toolu_1"}
            said[size] = json.loads(self.ask(run_dir, json.dumps(call)).stdout)["hookSpecificOutput"]
        assert said[LONGEST_PLAN]["permissionDecision"] == "defer"
        assert said[LONGEST_PLAN + 1]["permissionDecision"] == "deny"
        assert "100,001 characters" in said[LONGEST_PLAN + 1]["permissionDecisionReason"]

    @pytest.mark.parametrize(
        ("content", "permission"),
        [
            ("x" * 29_000, "defer"),
            ("x" * 30_000, "deny"),
            ("x\n" * 999, "defer"),
            ("x\n" * 1_000, "deny"),
            ("\u202e" * 3_000, "defer"),
            ("\u202e" * 4_000, "deny"),
        ],
    )
    def test_h7_a_call_that_cannot_be_shown_whole_is_approved_by_nobody(
        self, run_dir: Path, content: str, permission: str
    ) -> None:
        """What is shown of a call that waits is all of it, also where hidden characters are written out."""
        orders = json.loads((run_dir / "orders.json").read_text())
        (run_dir / "orders.json").write_text(
            json.dumps({**orders, "home": f"{run_dir}/home", "ask_before": ["Write"]})
        )
        given = {"file_path": str(Path(orders["workspace"]) / "a.sql"), "content": content}
        call = {"tool_name": "Write", "tool_input": given, "tool_use_id": "toolu_1"}
        said = json.loads(self.ask(run_dir, json.dumps(call)).stdout)["hookSpecificOutput"]
        assert said["permissionDecision"] == permission
        asked = approval_of("toolu_1", "Write", given, workspace=Path(orders["workspace"]), home=run_dir)
        if permission == "defer":
            assert [one.text for one in asked.evidence] == [visible(content)]

    def test_a_plan_that_was_changed_after_it_was_shown_is_not_approved(self, run_dir: Path) -> None:
        permission = {"permissionDecision": "allow", "updatedInput": {}, "forInput": {"plan": "# Shown"}}
        (run_dir / "permissions.json").write_text(json.dumps({"toolu_1": permission}))
        said = {}
        for plan in ("# Shown", "# Other"):
            call = {"tool_name": "ExitPlanMode", "tool_input": {"plan": plan}, "tool_use_id": "toolu_1"}
            said[plan] = json.loads(self.ask(run_dir, json.dumps(call)).stdout)["hookSpecificOutput"]
        assert said["# Shown"]["permissionDecision"] == "allow"
        assert said["# Other"]["permissionDecisionReason"] == OTHER_PLAN

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
        ('cat-herder ask -- "Is this" --about goal', ["Is this --about goal"], False),
        ('cat-herder ask "About the goal?"', ["About the goal?"], False),
        ('cat-herder ask "What is --about goal?"', ["What is --about goal?"], False),
        ("ls --about goal", [], False),
    ],
)
def test_the_command_says_what_a_question_is_about(
    command: str, questions: list[str], about_goal: bool
) -> None:
    assert questions_in(command) == questions
    assert asks_about_goal(command) is about_goal
