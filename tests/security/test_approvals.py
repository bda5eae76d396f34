"""What a person approves is what is done: nothing hides in a call that is shown to be judged (R4)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tasks_app.agent.approvals import KNOWN_ONLY_THEN, approval_of
from tasks_app.agent.config_dir import plans_folder
from tasks_app.agent.outcome import open_asks
from tasks_app.agent.stream import Stream
from tasks_app.core.text import strip_controls
from tasks_app.core.types import Ask, Evidence
from tasks_app.models import Question
from tasks_app.web.questions.cards import evidence_of

WORKSPACE, HOME = Path("/w"), Path("/home/guest")

HIDING = {
    "title-of-a-terminal": "ls \x1b]0;$(rm -rf hidden)\x07",
    "sequence": "ls \x1b[1;hidden",
    "overwritten": "rm -rf hidden\rls             ",
    "rubbed-out": "hidden\b\b\b\b\b\bls    ",
    "turned-round": "ls \u202e hidden \u202c",
    "isolated": "ls \u2066# \u2069hidden",
    "no-width": "l\u200bs hidden",
    "tags": "ls hidden\U000e0041",
    "c1": "ls \x9d0;hidden\x9c",
}


def ask_for(name: str, **given: str) -> Ask:
    return approval_of("1", name, given, workspace=WORKSPACE, home=HOME)


@pytest.mark.parametrize("text", HIDING.values(), ids=HIDING)
def test_nothing_hides_in_what_is_approved(text: str) -> None:
    """As a page shows it, which takes control sequences out, and as a terminal does."""
    asks = [
        ask_for("Bash", command=text, description=text),
        ask_for("Write", file_path=text, content=text),
        ask_for("Edit", file_path=text, old_string="", new_string=text),
        ask_for("WebFetch", url=text),
    ]
    for ask in asks:
        for piece in (*ask.evidence, Evidence("text", "", ask.items[0].question)):
            shown = piece.text
            assert strip_controls(shown) == shown and shown.replace("\n", "").isprintable(), ask
            assert "hidden" in shown or piece.title == KNOWN_ONLY_THEN


def test_what_the_agent_says_of_a_command_is_called_so() -> None:
    """Its words stand above the command that will run, and may say something else."""
    assert ask_for("Bash", command="ls", description="Lists").evidence[0].title == "The agent says: Lists"
    assert ask_for("Bash", command="ls").evidence[0].title == "Command"


@pytest.mark.parametrize(("globs", "files"), [(["src/**", "*.md"], "src/**, *.md"), ([], "none")])
def test_a_command_is_shown_with_the_files_that_its_step_may_change(globs: list[str], files: str) -> None:
    """An approval is for the command. What it changes is judged after the run, by the step's globs."""
    rm = {"command": "rm tea.yaml"}
    asked = approval_of("1", "Bash", rm, workspace=WORKSPACE, home=HOME, allow_write=globs)
    assert [piece.text for piece in asked.evidence] == ["rm tea.yaml", files]
    anywhere = approval_of("1", "Bash", rm, workspace=WORKSPACE, home=HOME)
    assert [piece.text for piece in anywhere.evidence] == ["rm tea.yaml"]


def test_the_plan_of_the_call_itself_is_shown_and_whole(tmp_path: Path) -> None:
    plans_folder(tmp_path).mkdir(parents=True)
    (plans_folder(tmp_path) / "old.md").write_text("# Old")
    long = "# New\n" + "A line of the plan.\n" * 15_000
    for planned, shown in {long: long, "": "# Old"}.items():
        given = {"plan": planned} if planned else {}
        ask = approval_of("1", "ExitPlanMode", given, workspace=WORKSPACE, home=tmp_path)
        stored = Question(kind="plan", evidence=[asdict(piece) for piece in ask.evidence])
        assert [(pane.text, pane.cut) for pane in evidence_of(stored)] == [(shown, 0)]


def test_the_plan_that_is_approved_is_shown_although_the_same_message_edited_it() -> None:
    """The stream shows it as it was when the message came, the gate sees it after the edit."""
    stream = Stream()
    old, new = ({"plan": f"# {text}", "planFilePath": "/plans/a.md"} for text in ("Old", "New"))
    call = {"type": "tool_use", "id": "p", "name": "ExitPlanMode", "input": old}
    list(stream.read({"type": "assistant", "message": {"id": "m", "content": [call]}}))
    waiting = {"id": "p", "name": "ExitPlanMode", "input": new}
    list(stream.read({"type": "result", "subtype": "success", "deferred_tool_use": waiting}))
    (ask,) = open_asks(stream, (), may_ask=True, ask_before=(), workspace=WORKSPACE, home=HOME)
    assert ask.evidence[0].text == "# New" and ask.tool_input == new


def test_lines_that_only_a_program_takes_for_lines_hide_nothing() -> None:
    """A diff leaves out headers of files: no line of a file may pass for one."""
    ask = ask_for(
        "Edit", file_path="/w/a.js", old_string="a", new_string="b\u2028diff --git x\u2028index evil()"
    )
    assert "+b⟨U+2028⟩diff --git x⟨U+2028⟩index evil()" in ask.evidence[0].text.splitlines()


def test_ordinary_text_stays_as_it_is() -> None:
    text = "echo 'grüße, 世界 🐈'\n\tmake\r\ntrue"
    assert ask_for("Bash", command=text).evidence[0].text == text.replace("\r", "")


def test_the_first_lines_of_a_long_change_are_no_header() -> None:
    ask = ask_for("Edit", file_path="/w/a.sql", old_string="-- keep\n" * 2_001, new_string="++ new")
    (pane,) = evidence_of(Question(evidence=[asdict(ask.evidence[0])]))
    assert [line.text for line in pane.lines][1:3] == ["-- keep", "-- keep"]


def test_lines_that_are_not_shown_are_counted() -> None:
    text = "@@ @@\n" + "+x\n" * 5_000
    (pane,) = evidence_of(Question(evidence=[{"kind": "diff", "title": "", "text": text}]))
    assert pane.cut == 2 * (5_001 - len(pane.lines)) > 0


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("make deploy", ""),
        ("git commit -m 'costs $5 and `ls` *' && cp a.txt b.txt > log 2>&1", ""),
        ('echo "a * b?" \\$HOME', ""),
        ("cat > run.sh <<'EOF'\nrm -rf $1/*\nEOF\nmake", ""),
        ("rm -rf $TARGET", "$TARGET"),
        ('rm -rf "${TARGET:-/}/build"', "${TARGET:-/}"),
        ("rm -rf build/*.o src/[ab].o", "build/*.o, src/[ab].o"),
        ("rm {a,b}.txt", "{a,b}.txt"),
        ('kill "$(cat pid)" `cat other` $$', "$(…), `…`, $$"),
        ("cat > run.sh <<EOF\nrm -rf $1\nEOF", "$1"),
        ("cat > run.sh <<'EOF'\nEOF\nrm $X > $OUT", "$X, $OUT"),
    ],
)
def test_what_only_the_shell_knows_is_named(command: str, parts: str) -> None:
    """What is approved is what will run, or the card says which parts nobody can know before."""
    said = [
        one.text for one in ask_for("Bash", command=command).evidence if one.title.startswith("Known only")
    ]
    assert [text.rpartition("here: ")[2] for text in said] == ([f"{parts}."] if parts else [])


SETUP = """[project]
name = "tool"

# Of the releases.
version = "2.4.0"  # DO NOT EDIT THIS LINE MANUALLY
[tool]
a = 1
b = 2
c = 3
"""
EDIT = {"file_path": "/w/setup.toml", "old_string": 'version = "2.4.0"', "new_string": 'version = "2.5.0"'}


@pytest.fixture
def on_host(tmp_path: Path) -> Path:
    """The workspace on this host, beside a file that the agent must not learn of."""
    (tmp_path / "secret").write_text("version = secret")
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "setup.toml").write_bytes(SETUP.replace("\n", "\r\n").encode())
    return folder


def edit(on_host: Path, **given: object) -> Ask:
    return approval_of("1", "Edit", {**EDIT, **given}, workspace=WORKSPACE, home=HOME, on_host=on_host)


def test_an_edit_is_shown_with_the_whole_lines_of_the_file_and_their_numbers(on_host: Path) -> None:
    (piece,) = edit(on_host).evidence
    assert piece.text.splitlines()[2:] == [
        "@@ -2,7 +2,7 @@",
        ' name = "tool"',
        " ",
        " # Of the releases.",
        '-version = "2.4.0"  # DO NOT EDIT THIS LINE MANUALLY',
        '+version = "2.5.0"  # DO NOT EDIT THIS LINE MANUALLY',
        " [tool]",
        " a = 1",
        " b = 2",
    ]
    (pane,) = evidence_of(Question(evidence=[asdict(piece)]))
    numbers = {line.text: (line.old, line.new) for line in pane.lines}
    assert numbers['version = "2.4.0"  # DO NOT EDIT THIS LINE MANUALLY'] == (5, None)
    assert numbers['version = "2.5.0"  # DO NOT EDIT THIS LINE MANUALLY'] == (None, 5)
    assert numbers["[tool]"] == (6, 6)


def test_an_edit_of_every_place_shows_each_of_them(on_host: Path) -> None:
    text = "".join(f"{number} {'old' if number in (2, 4, 50) else '-'} end\n" for number in range(1, 60))
    (on_host / "setup.toml").write_text(text)
    (piece,) = edit(on_host, old_string="old", new_string="new\nnew", replace_all=True).evidence
    assert [
        line for line in piece.text.splitlines() if line[0] in "@+-" and line[:3] not in ("---", "+++")
    ] == [
        *("@@ -1,7 +1,9 @@", "-2 old end", "+2 new", "+new end", "-4 old end", "+4 new", "+new end"),
        *("@@ -47,7 +49,8 @@", "-50 old end", "+50 new", "+new end"),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"old_string": "version = 3"}, "not in the file"),
        ({"file_path": "/w/missing.toml"}, "no such file"),
        ({"old_string": " = "}, "5 times"),
        ({"file_path": "/w/outside", "old_string": "version"}, "could not be read"),
        ({"file_path": "/w/../secret", "old_string": "version"}, "could not be read"),
        ({"file_path": "/elsewhere/a.toml"}, "could not be read"),
        ({"file_path": "/w/binary"}, "could not be read"),
        ({"file_path": "/w/long"}, "too long"),
    ],
)
def test_an_edit_that_cannot_be_shown_in_its_file_says_so(
    on_host: Path, given: dict[str, object], said: str
) -> None:
    (on_host / "outside").symlink_to("../secret")
    (on_host / "binary").write_bytes(b"\xff version")
    (on_host / "long").write_text("x" * 50_000 + EDIT["old_string"])
    diff, note = edit(on_host, **given).evidence
    assert said in note.text and note.title
    assert "version = secret" not in diff.text
    assert f"-{given.get('old_string', EDIT['old_string'])}" in diff.text.splitlines()
    (pane,) = evidence_of(Question(evidence=[asdict(diff)]))
    assert {(line.old, line.new) for line in pane.lines} == {(None, None)}


def test_an_edit_that_makes_a_file_has_nothing_to_compare(on_host: Path) -> None:
    (piece,) = edit(on_host, file_path="/w/new.toml", old_string="").evidence
    assert '+version = "2.5.0"' in piece.text.splitlines()


def written(on_host: Path, path: str, content: str) -> Ask:
    given = {"file_path": f"/w/{path}", "content": content}
    return approval_of("1", "Write", given, workspace=WORKSPACE, home=HOME, on_host=on_host)


def test_a_write_of_a_file_that_exists_shows_what_it_changes(on_host: Path) -> None:
    """What it takes away stood nowhere."""
    (piece,) = written(on_host, "setup.toml", SETUP.replace("[tool]\n", "")).evidence
    assert piece.kind == "diff" and piece.title == "setup.toml"
    changed = [line for line in piece.text.splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-[tool]"]
    (new,) = written(on_host, "new.toml", "a = 1\n").evidence
    assert (new.kind, new.text) == ("file", "a = 1\n")


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("setup.toml", SETUP, "already"),
        ("binary", "a", "could not be read"),
        ("outside", "a", "could not be read"),
        ("long", "a", "too long"),
        ("lines", "a\n" * 900, "too long"),
    ],
)
def test_a_write_whose_difference_cannot_be_shown_shows_the_content_and_says_why(
    on_host: Path, path: str, content: str, said: str
) -> None:
    (on_host / "outside").symlink_to("../secret")
    (on_host / "binary").write_bytes(b"\xff version")
    (on_host / "long").write_text("x" * 50_000)
    (on_host / "lines").write_text("x\n" * 1_500)
    shown, note = written(on_host, path, content).evidence
    assert (shown.kind, shown.text) == ("file", content)
    assert said in note.text and "secret" not in note.text


def test_the_rule_that_names_the_tool_itself_is_shown_first(on_host: Path) -> None:
    stream = Stream()
    waiting = {"id": "p", "name": "Edit", "input": EDIT}
    list(stream.read({"type": "result", "subtype": "success", "deferred_tool_use": waiting}))
    rules = ("*", "Write(setup.toml)", "Edit(setup.toml)", "Edit")
    (ask,) = open_asks(stream, (), may_ask=True, ask_before=rules, workspace=WORKSPACE, home=HOME)
    assert ask.evidence[-1].text == "Edit(setup.toml)"
