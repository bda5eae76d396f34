"""H8: what a session holds as the result of a call."""

from __future__ import annotations

from typing import Any

import pytest

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
    ],
)
def test_what_the_program_writes_for_a_dead_call_is_no_result(
    result: dict[str, Any], kind: CallResult
) -> None:
    assert result_in(session(**result), "call") is kind


def test_a_call_without_a_result_has_none() -> None:
    assert result_in(session(content="Blue"), "another") is None
