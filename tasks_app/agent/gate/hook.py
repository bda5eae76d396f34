"""The gate: a hook that decides before every tool call that could halt the agent or write a file.

It is a separate program in the agent's sandbox (`python -ISB gate.pyc RUN_DIR`, JSON on stdin, the permission
on stdout), because it runs once per tool call and must start in milliseconds, and because an SDK callback
registers too late when a session is resumed. It reads only the run directory, which the agent cannot write.
For the same reason what reads commands and paths is imported by those functions that need it: most calls need
neither, and importing it takes a third of the time that is not Python's own start.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys

if __name__ == "__main__":  # as a program it finds its modules in its own folder
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

#: The beginning of the reason for refusing a call that the gate cannot judge.
BROKEN = "The gate of this run is broken"
#: The reason for refusing to ask when the threshold has become 0 in a session that began with a way to ask.
NOBODY = (
    "The interaction threshold is 0 now, so nobody can be asked. Decide by yourself, and write down what you "
    "assumed."
)
#: Maximum time for one call. A gate that is killed by its alarm has blocked the call.
SECONDS = 15
#: The reason for refusing a command that asks, if its text is not there to be read.
NOT_WRITTEN_OUT = (
    "Nobody was asked, and nothing of this command was run: a question is only taken from the plain command, "
    "so that people read exactly what you wrote. To ask, run `cat-herder ask 'Your question?'` as a command "
    "of its own, with the whole question in single or double quotes: nothing in it that the shell replaces "
    "(in double quotes, put a backslash before each `$` and backtick), no here-document, no pipe, no "
    "redirection, nothing before or after it. The only option is `--about goal`."
)
#: The reason for refusing a command that notes something for people, of which the shell would run a part.
IN_BACKTICKS = (
    "Nothing was noted, and nothing of this command was run: the shell would run what stands between "
    "backticks and put its output into the text. Put the text in single quotes, or leave the backticks out."
)
#: The reason for refusing a call of AskUserQuestion whose questions or options cannot be told apart.
NOT_ASKABLE = (
    "Nobody was asked: a question or an option of this call has no text, or the same text as another one, so "
    "an answer to it could not be told apart. Ask again, and give each question and each option words of its "
    "own."
)
#: The reason for refusing a sub-agent's call that waits for a human. Deferred, it would end the sub-agent
#: without a word, and its work would seem to be done.
BY_SUBAGENT = (
    "This call was not made: it waits for a human, and you are a sub-agent, which cannot wait. End your turn "
    "now, and hand this call back, word for word, to the agent that started you. That agent makes the call "
    "itself, and a human is asked then."
)
#: The reason for refusing a call that needs an approval, in a step that does not allow it at all.
NOT_COVERED = (
    "This call was not made, and nobody was asked to approve it: `{rule}` is among the calls that wait for a "
    "human, and this step does not allow it, so an approval would not change that. Leave it to the step that "
    "does it, or go on without it."
)
#: The same in a step whose plan waits for approval first.
NOT_BEFORE_THE_PLAN = (
    "This call was not made, and nobody was asked to approve it: `{rule}` is among the calls that wait for a "
    "human, and nobody can be asked about it before your plan is approved. Make it after that, or look in "
    "another way now."
)
#: A plan is reviewed whole, so its approval can be about nothing that was not shown. Longer ones are refused.
LONGEST_PLAN = 100_000
PLAN_TOO_LONG = (
    "The plan was not shown to anybody: it has {size:,} characters, and a human reviews at most {most:,}. "
    "Shorten it, and call ExitPlanMode again."
)
#: A call is approved exactly as it is shown, so a call that does not fit on a card is refused. What counts is
#: the number of characters and of lines in its whole input.
LONGEST_CALL, MOST_LINES = 30_000, 1_000
CALL_TOO_LONG = (
    "This call was not made, and nobody was asked to approve it: a human approves what they can read whole, "
    "at most {most:,} characters in {most_lines:,} lines, and this call has {size:,} in {lines:,}. Make "
    "shorter calls of it, one after the other."
)
#: The reason for refusing an approved call whose input is another one now.
OTHER_CALL = "This is not the call that a human approved; it was not made."
OTHER_PLAN = (
    "The plan was changed after a human had seen it, and this is not the text that they approved. Call "
    "ExitPlanMode again, as the only call of its message, and they see the plan as it is now."
)
#: The call waits for a human.
DEFER = {"permissionDecision": "defer"}
#: In the sandbox this folder is empty when a run begins, and only its processes see it.
TEMPORARY = "/tmp"  # noqa: S108


def questions_in(command: str) -> list[str]:
    """Return the questions that a shell command asks by `cat-herder ask "…"`, in order.

    They are the agent's own words: there are none if the shell would still change anything in the line.
    """
    return list(dict.fromkeys(question for question, _ in _asked_in(command)))


def asks_about_goal(command: str) -> bool:
    """Return whether a shell command says of a question that it is about the goal: `--about goal`."""
    return any(about for _, about in _asked_in(command))


def only_asks(command: str) -> bool:
    """Return whether the command asks one question and does nothing else."""
    from tasks_app.agent.gate.shell_words import plain_commands

    return len(_asked_in(command)) == len(plain_commands(command) or ()) == 1


def _asked_in(command: str) -> list[tuple[str, bool]]:
    """Return each question that is written out, and whether it is said to be about the goal.

    There are none if another one in the line is not written out.
    """
    if "cat-herder" not in command:
        return []
    from tasks_app.agent.gate.shell_words import plain_commands

    asking = [
        words[2:]
        for words in plain_commands(command) or ()
        if words[1:2] == ["ask"] and words[0].rsplit("/", 1)[-1] == "cat-herder"
    ]
    found = [_written_out(words) for words in asking]
    return [asked for asked in found if asked] if all(found) else []


def _written_out(words: list[str]) -> tuple[str, bool] | None:
    """Return the question in the words after `ask`, and whether it is about the goal; None without one.

    None also with an unknown option: the command would refuse it.
    """
    lowered = [word.lower() for word in words]
    about_goal = False
    for option in (["--about=goal"], ["--about", "goal"]):
        size = len(option)
        if lowered[:size] == option:
            words, about_goal = words[size:], True
        elif "--" not in words and lowered[-size:] == option:
            words, about_goal = words[:-size], True
    if words[:1] == ["--"]:
        words = words[1:]
    elif any(len(word) > 1 and word[0] == "-" and " " not in word for word in words):
        return None
    question = " ".join(words).strip()
    return (question, about_goal) if question else None


def asks_unreadably(command: str) -> bool:
    """Return whether a shell command asks a question whose text is not written out.

    One that is not found here, as in a script, is not lost: when the command runs, it stores the question in
    the ask spool. So a text that only mentions such a command, as one for `grep` does, is not refused.
    """
    if "cat-herder" not in command or questions_in(command):
        return False
    from tasks_app.agent.gate.possible_commands import certain_commands, program_name
    from tasks_app.agent.gate.shell_programs import SHELLS

    try:
        for words in certain_commands(command):
            if words[0] in SHELLS:  # `bash cat-herder ask …`
                words = [program_name(word) for word in words[1:2]] + words[2:]
            if words[:2] == ["cat-herder", "ask"]:
                return not {"-h", "--help"}.intersection(words[2:])
    except (ValueError, RecursionError):  # the command cannot be parsed
        return re.search(r"(?:\A|[\s;&|(/])cat-herder\s+ask\b", command) is not None
    return False


def runs_part_of_note(command: str) -> bool:
    """Return whether the shell would run a part of a note for people: code between backticks.

    A command with a here-document is left alone: agents use it to pass a long text as it is.
    """
    if not re.search(r"cat-herder\s+(reply|unfit|not-done)\b", command) or "<<" in command:
        return False
    quoted = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
    read_by_shell = quoted.sub(lambda m: re.sub(r"\\.", "", m[0]) if m[0][0] == '"' else "", command)
    return "`" in read_by_shell


def is_own_command(line: str) -> bool:
    """Return whether the line is one command of `cat-herder` and nothing else.

    Such commands only read, or note something for the portal. Redirections, substitutions and further
    commands do not pass, so that none of them brings a change along.
    """
    from tasks_app.agent.gate.shell_words import plain_commands

    commands = plain_commands(line)
    return commands is not None and len(commands) == 1 and commands[0][0] == "cat-herder"


def is_askable(tool_input: dict) -> bool:  # type: ignore[type-arg]
    """Return whether each question of an AskUserQuestion call, and each option, has a text of its own.

    A human does not see differences in blanks, and unpaired surrogates cannot be stored.
    """
    try:
        items = tool_input["questions"]
        texts = [[item["question"] for item in items]]
        texts += [[option["label"] for option in item.get("options") or ()] for item in items]
        seen = [[" ".join(text.split()).encode("utf-8", "replace") for text in one] for one in texts]
    except (AttributeError, KeyError, TypeError):  # the agent's program rejects such a call by itself
        return False
    return bool(items) and all(all(words) and len(set(words)) == len(words) for words in seen)


def decide(call: dict, permissions: dict) -> dict | None:  # type: ignore[type-arg]
    """Return what the hook says of a tool call, or None to let the CLI's own rules decide."""
    permission = _human_permission(call, permissions)
    if permission is not None:
        return permission
    given = call.get("tool_input", {})
    if call.get("tool_name") == "AskUserQuestion":
        return DEFER if is_askable(given) else _deny(NOT_ASKABLE)
    if call.get("tool_name") != "Bash":
        return None
    command = str(given.get("command", ""))
    if asks_unreadably(command):
        return _deny(NOT_WRITTEN_OUT)
    return DEFER if questions_in(command) else None


def _human_permission(call: dict, permissions: dict) -> dict | None:  # type: ignore[type-arg]
    """Return a human's permission for this call. An approval applies only to the input that was shown."""
    stored = permissions.get(call.get("tool_use_id"))
    if stored is None:
        return None
    permission = dict(stored)
    if permission.pop("forInput", call.get("tool_input")) != call.get("tool_input"):
        return _deny(OTHER_PLAN if call.get("tool_name") == "ExitPlanMode" else OTHER_CALL)
    return permission


def _deny(reason: str) -> dict:  # type: ignore[type-arg]
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}


def approval(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Halt at a plan for review, and at calls that need an approval in this project."""
    name = str(call.get("tool_name"))
    given = call.get("tool_input")
    given = given if isinstance(given, dict) else {}
    if name == "ExitPlanMode" and orders.get("plans"):
        size = len(str(given.get("plan") or ""))
        if size <= LONGEST_PLAN:
            return DEFER
        return _deny(PLAN_TOO_LONG.format(size=size, most=LONGEST_PLAN))
    rules = orders.get("ask_before", [])
    if not rules:
        return None
    from tasks_app.agent.gate.patterns import needs_approval

    folders = {"workspace": orders["workspace"], "cwd": str(call.get("cwd", ""))}
    rule = needs_approval(rules, name, given, **folders)
    if not rule:
        return None
    if _is_refused_anyway(name, given, orders, folders["cwd"]):
        reason = NOT_BEFORE_THE_PLAN if orders.get("plans_first") else NOT_COVERED
        return _deny(reason.format(rule=rule))
    shown = json.dumps(given, ensure_ascii=False)
    hidden = sum(not character.isprintable() for character in shown)  # a card writes them out
    size, lines = len(shown) + 8 * hidden, shown.count("\\n") + 1
    if size <= LONGEST_CALL and lines <= MOST_LINES:
        return DEFER
    return _deny(CALL_TOO_LONG.format(size=size, lines=lines, most=LONGEST_CALL, most_lines=MOST_LINES))


def _is_refused_anyway(name: str, given: dict, orders: dict, cwd: str) -> bool:  # type: ignore[type-arg]
    """Return whether the step refuses the call also with an approval, so that nobody is to be asked."""
    from tasks_app.agent.gate.patterns import WRITING, path_within, permitted

    if name != "Bash" and name not in WRITING:
        return False
    if name == "Bash" and is_own_command(str(given.get("command", ""))):
        return False
    if orders.get("plans_first"):
        return True
    rules = orders.get("allowed_tools")
    path = path_within(str(given.get(WRITING.get(name, ""), "")), orders["workspace"], cwd)
    return rules is not None and not permitted(rules, name, given, path)


def writes_plan(call: dict, orders: dict) -> bool:  # type: ignore[type-arg]
    """Return whether the call writes the plan for review, which lies outside the workspace."""
    if not orders.get("plans"):
        return False
    from tasks_app.agent.gate.patterns import WRITING, path_within

    key = WRITING.get(call.get("tool_name", ""))
    if key is None:
        return False
    return (
        path_within(str(call.get("tool_input", {}).get(key, "")), orders["plans"], call.get("cwd", ""))
        is not None
    )


def guard(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Refuse to write a file outside the workspace, or outside the step's globs, `allow_write` in the orders.

    Without globs the agent may write temporary files as well, which are lost when the run ends.
    """
    from tasks_app.agent.gate.path_patterns import allowed
    from tasks_app.agent.gate.patterns import WRITING, path_within

    key = WRITING.get(call.get("tool_name", ""))
    if key is None:
        return None
    written, cwd = str(call.get("tool_input", {}).get(key, "")), call.get("cwd", "")
    path = path_within(written, orders["workspace"], cwd)
    globs = orders.get("allow_write")
    if globs is not None:
        inside = path is not None and allowed(path, globs)
        if inside:
            return None
        return _deny(refusal(orders["step"], globs, path or written))
    is_temporary = path_within(written, TEMPORARY, cwd) and not path_within(written, orders["home"], cwd)
    if path is not None or is_temporary:
        return None
    real = os.path.realpath(os.path.join(cwd or orders["workspace"], written))  # noqa: PTH118
    return _deny(outside(written, real, orders["workspace"]))


def outside(path: str, real: str, workspace: str) -> str:
    """Return the reason for refusing to write a file, at the resolved path `real`, outside of any result."""
    leads_to = "" if real == path else f" ({real})"
    return (
        f"{path}{leads_to} was not written: it is outside the workspace of this task, {workspace}, and so no "
        f"part of its result. Write to a file in it; what only this run needs may be in {TEMPORARY}."
    )


def refusal(step: str, globs: list[str], path: str) -> str:
    """Return the reason for refusing a write, with the step, its globs and the file."""
    if not globs:
        return f"The step “{step}” may write no file; {path} was not written."
    return f"The step “{step}” may write only {', '.join(globs)}; {path} is not among them."


def verdict(call: dict, run_dir: str) -> dict | None:  # type: ignore[type-arg]
    """Return the permission for the call according to the run's orders."""
    orders = _read_run_file(run_dir, "orders.json")
    permissions = _read_run_file(run_dir, "permissions.json")
    if call.get("tool_name") == "Bash" and runs_part_of_note(str(call["tool_input"].get("command", ""))):
        return _deny(IN_BACKTICKS)
    permission = decide(call, permissions) if orders.get("may_ask") else _human_permission(call, permissions)
    if permission is None and orders.get("asks_no_more") and decide(call, {}):
        return _deny(NOBODY)
    if permission is None and not writes_plan(call, orders):
        permission = guard(call, orders) or approval(call, orders)
    if call.get("agent_id") and permission == DEFER:
        return _deny(BY_SUBAGENT)
    return permission


def _read_run_file(run_dir: str, name: str) -> dict:  # type: ignore[type-arg]
    with open(f"{run_dir}/{name}", encoding="utf-8") as file:  # noqa: PTH123
        return dict(json.load(file))


def main(run_dir: str) -> int:
    """Return the exit code. 2 blocks the call: a gate that cannot read its orders must not allow anything."""
    signal.alarm(SECONDS)  # the agent's program allows a call whose hook takes too long
    try:
        permission = verdict(json.load(sys.stdin), run_dir)
    except Exception as error:
        print(f"{BROKEN} ({error}); the call was not made.", file=sys.stderr)
        return 2
    if permission is not None:
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **permission}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
