"""Patterns of tool calls that a human must approve: what they match, and ways round them by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.gate.patterns import (
    LONGEST_PATTERN,
    call_pattern_fault,
    command_matches,
    needs_approval,
    wild,
)
from tests.steps import steps

PUSH = "git push*"


def asks(pattern: str, name: str, workspace: str = "/w", **given: Any) -> bool:
    return needs_approval([pattern], name, given, workspace=workspace) is not None


@pytest.mark.parametrize("name", ["Task", "Agent"])
@pytest.mark.parametrize("pattern", ["Task", "Agent", "Task(*deploy*)", "Agent(*deploy*)"])
def test_a_sub_agent_is_asked_about_by_either_name(pattern: str, name: str) -> None:
    assert asks(pattern, name, prompt="Please deploy it.")


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push origin main",
        "  git   push  ",
        "cd x && git push",
        "cd x; git push",
        "cd x\ngit push",
        "make || git push",
        "make | git push",
        "make & git push",
        "(git push)",
        "{ git push; }",
        "! git push",
        "if true; then git push; fi",
        "for r in a b; do git push $r; done",
        "FOO=1 git push",
        "env FOO=1 git push",
        "env -i FOO=1 git push",
        "/usr/bin/git push",
        "sudo git push",
        "sudo -u bob git push",
        "timeout 5 git push",
        "nice -n 10 git push",
        "nohup git push &",
        "time git push",
        "command git push",
        "exec git push",
        "echo origin | xargs git push",
        "echo origin | xargs -n 1 git push",
        "find . -name x -exec git push {} \\;",
        "bash -c 'git push'",
        "bash -lc 'cd x && git push'",
        'sh -c "cd x; git push"',
        "env A=b bash -c 'git push'",
        "eval git push",
        "eval 'git push'",
        "echo $(git push)",
        'echo "$(git push)"',
        "echo `git push`",
        'echo "done: `git push`"',
        "cat <(git push)",
        "git -C repo push",
        "git -c user.name=x push",
        "git --no-pager push",
        "git --git-dir=.git push",
        "cd x && /usr/bin/git -C y push origin",
        "'git' push",
        '"git" "push"',
        "g\\it pu\\sh",
        'gi""t push',
        "git \\\n  push",
        "git${IFS}push",
        ">log git push",
        "2>&1 git push",
        "git 2>/dev/null push",
        "bash <<EOF\ngit push\nEOF",
        "bash <<'EOF'\ncd x\ngit push\nEOF",
        "cat <<EOF\n$(git push)\nEOF",
        "echo 'git push' | sh",
        "printf 'git push\\n' | bash",
        "su -c 'git push' bob",
        "bash -c \"bash -c 'git push'\"",
        "python3 -c \"import os; os.system('git push')\"",
        "git push 'unbalanced",
        'echo "unbalanced; git push',
        "ssh host git push",
        "a() { git push; }; a",
        "case x in x) git push;; esac",
        "git push # done",
    ],
)
def test_a_command_is_found_wherever_it_stands(command: str) -> None:
    assert command_matches(command, PUSH)
    assert asks("Bash(git push*)", "Bash", command=command)
    assert asks("Bash(git push:*)", "Bash", command=command)


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git pull",
        "git commit -m 'then git push'",
        "echo git push",
        "grep -r 'git push' docs",
        "cat <<'EOF' > notes.md\ngit push\nEOF",
        "git stash push",
        "gitx push",
        "",
    ],
)
def test_other_commands_are_not(command: str) -> None:
    assert not command_matches(command, PUSH)


@pytest.mark.parametrize(
    ("glob", "command", "matches"),
    [
        ("*rm -rf*", "sudo rm -rf /x", True),
        ("*rm -rf*", "rm  -rf x", True),
        ("*rm -rf*", "rm -r x", False),
        ("rm *", "rm", True),
        ("rm *", "rmdir x", False),
        ("git tag", "git tag", True),
        ("git tag", "git tag v1", False),
        ("*&& make deploy*", "cd x && make deploy now", True),
        ("npm publish*", "cd p && npm publish --tag x", True),
        ("*", "anything", True),
        ("* --force*", "git push --force", True),
        ("[a-z]*", "git push", False),
        ("what?", "what", False),
    ],
)
def test_only_a_star_is_special_in_commands(glob: str, command: str, matches: bool) -> None:
    assert command_matches(command, glob) is matches


@pytest.mark.parametrize(
    ("pattern", "name", "path", "asked"),
    [
        ("Write(migrations/**)", "Write", "/w/migrations/0002.py", True),
        ("Write(migrations/**)", "Write", "migrations/0002.py", True),
        ("Write(migrations/**)", "Write", "/w/a/../migrations/0002.py", True),
        ("Write(migrations/**)", "Edit", "/w/migrations/0002.py", True),
        ("Edit(**/*.sql)", "Write", "/w/a/b.sql", True),
        ("Edit(**/*.sql)", "Edit", "/w/b.sql", True),
        ("Edit(**/*.sql)", "NotebookEdit", "/w/b.sql", True),
        ("Write(migrations/**)", "Write", "/w/src/migrations.py", False),
        ("Write(/etc/**)", "Write", "/etc/hosts", True),
        ("Read(secrets/*)", "Read", "/w/secrets/key", True),
        ("Read(secrets/*)", "Write", "/w/secrets/key", False),
        ("Write", "Edit", "/w/x", True),
        ("*", "Write", "/w/x", True),
    ],
)
def test_files_are_matched_as_seen_from_the_workspace(
    pattern: str, name: str, path: str, asked: bool
) -> None:
    """A rule for one tool that writes holds for all of them."""
    key = "notebook_path" if name == "NotebookEdit" else "file_path"
    assert asks(pattern, name, **{key: path}) is asked


def test_a_link_does_not_lead_round_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "other").symlink_to("migrations")
    assert asks("Write(migrations/**)", "Write", str(tmp_path), file_path=str(tmp_path / "other" / "x.py"))


@pytest.mark.parametrize(
    ("pattern", "name", "given", "asked"),
    [
        ("WebFetch", "WebFetch", {"url": "https://x.org"}, True),
        ("WebFetch(https://*.example.com/*)", "WebFetch", {"url": "https://a.example.com/b"}, True),
        ("WebFetch(https://*.example.com/*)", "WebFetch", {"url": "https://example.org/"}, False),
        ("mcp__*", "mcp__db__query", {"sql": "drop"}, True),
        ("mcp__db__*(*drop*)", "mcp__db__query", {"a": [{"sql": "drop table x"}]}, True),
        ("mcp__*", "Bash", {"command": "mcp__x"}, False),
        ("Bash", "Bash", {"command": "ls"}, True),
        ("Bash(ls)", "Bash", {}, False),
        ("Bash(ls)", "Bash", {"command": None}, False),
    ],
)
def test_other_tools(pattern: str, name: str, given: dict[str, Any], asked: bool) -> None:
    assert asks(pattern, name, **given) is asked


@pytest.mark.parametrize("pattern", ["Bash(git push*)", "WebFetch", "mcp__*", "*", "Write(a (b)/**)"])
def test_good_patterns_have_no_fault(pattern: str) -> None:
    assert call_pattern_fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " ",
        "git push",
        "Bash(",
        "Bash()",
        "Bash(x",
        "Bash x",
        "(x)",
        "Bash(a\nb)",
        "B" * (LONGEST_PATTERN + 1),
    ],
)
def test_bad_patterns_have_one(pattern: str) -> None:
    assert call_pattern_fault(pattern)


@pytest.mark.parametrize(
    ("piece", "closing"),
    [*((piece, "") for piece in ("a ", "$(", "`", "a;", "x", "bash -c '", '"$(', "<<A ")), ('"$(', ')"')],
)
@pytest.mark.parametrize("glob", [PUSH, "*a*b*c*d*e*", "*" * 300])
def test_the_work_grows_no_faster_than_the_command(piece: str, closing: str, glob: str) -> None:
    """No pattern and no command takes the square of its length, or for ever."""
    few, many = (f"sudo {piece * number}{closing * number}" for number in (500, 1_000))
    assert steps(lambda: command_matches(many, glob)) < 2.2 * steps(lambda: command_matches(few, glob))


def test_what_stands_at_the_end_of_a_very_long_command_is_seen() -> None:
    assert command_matches("a;" * 50_000 + "git push", PUSH)


def test_stars_are_matched_piece_by_piece() -> None:
    assert wild("abcabc", "a*c") and wild("", "*") and wild("ab", "a**b")
    assert not wild("ab", "ab*b") and not wild("aXb", "a*X*X*b")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("secret/keys/a.pem", "src/app.py", "app/[id]/page.tsx", ".env"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "link").symlink_to("secret")
    return tmp_path


@pytest.mark.parametrize(
    ("rule", "name", "given", "asked"),
    [
        ("Read(secret/**)", "Read", {"file_path": "secret/keys/a.pem"}, True),
        ("Read(secret/**)", "NotebookRead", {"notebook_path": "secret/x.ipynb"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "secret"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "secret/keys/"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "secret/keys/a.pem"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "link"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "src/../secret"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "ROOT/secret"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "ROOT"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "/"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": "."}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY"}, True),
        ("Read(secret/**)", "Grep", {"pattern": "KEY", "path": None}, True),
        ("Read(secret/**)", "Grep", {"pattern": "secret/keys", "path": "src"}, False),
        ("Read(secret/**)", "Glob", {"pattern": "**/*.pem"}, True),
        ("Read(secret/**)", "Glob", {"pattern": "secret/*"}, True),
        ("Read(secret/**)", "Glob", {"pattern": "*", "path": "secret"}, True),
        ("Read(secret/**)", "Glob", {"pattern": "src/**/*.pem"}, False),
        ("Read(secret/**)", "Glob", {"pattern": "../secret/*", "path": "src"}, True),
        ("Read(secret/**)", "LS", {"path": "secret"}, True),
        ("Read(secret/**)", "LS", {"path": "src"}, False),
        ("Read(secret/**)", "Write", {"file_path": "secret/x"}, False),
        ("Read(**/*.pem)", "Grep", {"pattern": "KEY", "path": "src"}, True),
        ("Read(.env)", "Grep", {"pattern": "KEY"}, True),
        ("Read(.env)", "Grep", {"pattern": "KEY", "path": ".env"}, True),
        ("Read(.env)", "Grep", {"pattern": "KEY", "path": "src"}, False),
        ("Read(.env.local)", "Grep", {"pattern": "KEY"}, False),
        ("Read(private/**)", "Grep", {"pattern": "KEY"}, False),
        ("Read", "Grep", {"pattern": "KEY"}, True),
        ("Grep(secret/**)", "Grep", {"pattern": "KEY", "path": "secret"}, True),
        ("Grep(secret/**)", "Read", {"file_path": "secret/keys/a.pem"}, False),
        ("Read(app/[id]/**)", "Read", {"file_path": "app/[id]/page.tsx"}, True),
        ("Read(app/[id]/**)", "Grep", {"pattern": "x", "path": "app/[id]"}, True),
        ("Read(app/[id]/**)", "Glob", {"pattern": "app/[id]/*"}, True),
        ("Write(app/[id]/**)", "Edit", {"file_path": "app/[id]/page.tsx"}, True),
        ("Write(app/(group)/**)", "Write", {"file_path": "app/(group)/page.tsx"}, True),
        ("Write(docs/my file.md)", "Write", {"file_path": "docs/my file.md"}, True),
        ("Write(!x)", "Write", {"file_path": "!x"}, True),
    ],
)
def test_a_rule_for_reading_covers_every_tool_that_reads(
    rule: str, name: str, given: dict[str, Any], asked: bool, repository: Path
) -> None:
    """R4: what may not be read unasked may not be searched unasked either."""
    filled = {key: str(value or "").replace("ROOT", str(repository)) for key, value in given.items()}
    assert bool(needs_approval([rule], name, filled, workspace=str(repository))) is asked


def test_a_search_looks_from_the_current_folder(repository: Path) -> None:
    for folder, asked in (("src", False), ("secret", True)):
        rule = needs_approval(
            ["Read(secret/**)"],
            "Grep",
            {"pattern": "x"},
            workspace=str(repository),
            cwd=str(repository / folder),
        )
        assert bool(rule) is asked
