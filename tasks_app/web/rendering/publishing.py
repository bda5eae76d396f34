"""What a pipeline does with the result of a done task, in words."""

from __future__ import annotations

from tasks_app.config.publish import PublishConfig


def publishing_in_words(publish: PublishConfig | None) -> str:
    """Return what happens, to end a sentence: “the branch is pushed as one commit”; "" if nothing."""
    if publish is None:
        return ""
    squashed = " as one commit" if publish.squash else ""
    updated = " updated with the newest commits of the project’s branch and" if publish.update else ""
    parts = [f"the branch is{updated} pushed{squashed}"]
    if publish.pull_request:
        parts.append(f"a {'draft ' if publish.draft else ''}pull request is opened or updated")
    if publish.reviewers:
        names = ", ".join(publish.reviewers)
        parts.append(f"{names} {'is' if len(publish.reviewers) == 1 else 'are'} asked for a review")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
