"""H8: what a session holds as the result of a call."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.agent.call_permissions import SET_ASIDE
from tasks_app.agent.gate import hook
from tasks_app.agent.tools import was_refused
from tasks_app.agent.transcripts import CallResult, result_in

INTERRUPTED = "[Tool call interrupted: the session ended before this call's result was recorded.]"


def session(**result: Any) -> dict[str, list[dict[str, Any]]]:
    block = {"type": "tool_result", "tool_use_id": "call", **result}
    return {"": [{"type": "user", "message": {"role": "user", "content": [block]}}]}


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"content": "Blue"}, CallResult.GOOD),
        ({"content": "it failed", "is_error": True}, CallResult.ERROR),
        ({"content": INTERRUPTED, "is_error": True}, CallResult.BROKEN_OFF),
        ({"content": [{"type": "text", "text": INTERRUPTED}], "is_error": True}, CallResult.BROKEN_OFF),
        ({"content": "[Tool result missing due to internal error]"}, CallResult.BROKEN_OFF),
        (
            {"content": "[Tool call not made: the script has returned."},
            CallResult.BROKEN_OFF,
        ),
        ({"content": "[Tool call result not in this copy: this session was copied."}, CallResult.BROKEN_OFF),
    ],
)
def test_what_the_program_writes_for_a_dead_call_is_no_result(
    result: dict[str, Any], kind: CallResult
) -> None:
    assert result_in(session(**result), "call") is kind


def test_a_call_without_a_result_has_none() -> None:
    assert result_in(session(content="Blue"), "another") is None


@pytest.mark.parametrize(
    "reason",
    [
        hook.NOT_WRITTEN_OUT, hook.NOT_ASKABLE, hook.NOBODY, hook.BY_SUBAGENT, hook.NOT_COVERED,
        hook.NOT_BEFORE_THE_PLAN, SET_ASIDE,
        hook.outside("/etc/x", "/etc/x", "/work"), hook.refusal("do", [], "a"),
        hook.refusal("do", ["b"], "a"),
    ],
)  # fmt: skip
def test_w2_a_refusal_of_the_gate_is_told_apart_from_a_failure(reason: str) -> None:
    assert was_refused(reason) and not was_refused("Exit code 1\nFAILED tests/test_price.py")
