"""H7: the order in which a session is written for a resumption, whatever stood beside the deferred call."""

from __future__ import annotations

from typing import Any

from tasks_app.agent.transcripts import in_order_to_resume


def entry(uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "attachment", "uuid": uuid, "parentUuid": parent, **more}


def deferral(uuid: str, parent: str, call: str) -> dict[str, Any]:
    return entry(uuid, parent, attachment={"type": "hook_deferred_tool", "toolUseID": call})


def result(uuid: str, parent: str, call: str) -> dict[str, Any]:
    message = {"content": [{"type": "tool_result", "tool_use_id": call, "content": "Blue"}]}
    return entry(uuid, parent, type="user", message=message)


def chain(entries: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(one["uuid"], one["parentUuid"]) for one in entries if "uuid" in one]


NOTE = {"type": "last-prompt", "leafUuid": "r"}
FIRST = [entry("m", None), deferral("d", "m", "ask"), result("r", "d", "beside"), entry("s", "r"), NOTE]


def test_a_deferral_comes_last_and_its_children_hang_to_its_parent() -> None:
    ordered = in_order_to_resume(FIRST)
    assert chain(ordered) == [("m", None), ("r", "m"), ("s", "r"), ("d", "s")]
    assert ordered.count(NOTE) == 1
    assert chain(FIRST)[1] == ("d", "m"), "what is stored stays as it is"


def test_it_stays_where_it_was_when_the_session_goes_on() -> None:
    """What the model has read once does not change (its provider caches it)."""
    decided = entry("h", "d", attachment={"type": "hook_success", "toolUseID": "ask"})
    later = [
        decided,
        result("a", "m", "ask"),
        entry("n", "a"),
        deferral("e", "n", "next"),
        result("q", "n", "x"),
    ]
    ordered = in_order_to_resume([*FIRST, *later])
    assert chain(ordered)[:4] == chain(in_order_to_resume(FIRST))
    assert chain(ordered)[4:] == [("h", "d"), ("a", "m"), ("n", "a"), ("q", "n"), ("e", "q")]


def test_a_session_in_order_stays_as_it_is() -> None:
    for entries in ([], [entry("m", None)], [entry("m", None), deferral("d", "m", "ask"), NOTE]):
        assert in_order_to_resume(entries) == entries


def test_of_two_deferrals_in_one_message_the_last_stays() -> None:
    """The session waits at the last. The first gets no result, and what followed it follows its parent."""
    entries = [
        entry("m", None),
        deferral("d", "m", "one"),
        deferral("e", "d", "two"),
        result("r", "e", "beside"),
    ]
    assert chain(in_order_to_resume(entries)) == [("m", None), ("r", "m"), ("e", "r")]
