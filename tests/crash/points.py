"""The points of the code at which tests kill a worker: `engine/crashpoints.py`."""

from __future__ import annotations

POINTS = (
    "claimed",
    "begun",
    "run-opened",
    "event-recorded",
    "ask-recorded",
    "transcript-stored",
    "answer-recorded",
    "asked",
    "agent-ended",
    "halted",
    "result-stored",
    "work-recorded",
    "checked",
    "step-done",
    "task-done",
)
#: The same for a worker that makes a new workspace ready.
SETUP_POINTS = (
    "setup-opened",
    "setup-command-ended",
    "setup-done",
)
#: The same for a worker that fills the cache of a setup.
SETUP_CACHE_POINTS = ("setup-cache-copied",)
#: The same for a worker that asks at a soft cost limit, and one that ends a task there.
SOFT_LIMIT_POINTS = ("asked-about-cost", "ended-at-soft-limit", "ended-early")
#: The same for a worker that publishes a result.
PUBLISHING_POINTS = (
    "publication-claimed",
    "publication-checked",
    "publication-pushed",
)
#: The same for a worker that publishes as a pipeline says, before the points above.
PIPELINE_PUBLISHING_POINTS = (
    "pipeline-publication-due",
    "pipeline-publication-stored",
)
#: The same for a worker that opens a pull request.
PULL_REQUEST_POINTS = ("pull-request-opened",)
#: The same for a worker that posts an agent's reply there.
REPLY_POINTS = ("reply-posted",)
#: The same for a process that sends spans.
SPAN_POINTS = ("spans-sent",)
