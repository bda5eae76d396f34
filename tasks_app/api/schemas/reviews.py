"""Input schemas of reviews and threads, and lists of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Path, Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable
from tasks_app.models import ReviewVerdict, Side
from tasks_app.reporting.schemas.reviews import ReviewOut, ThreadOut
from tasks_app.services.reviews.reviews import MOST_THREADS, NewThread

ThreadNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="The thread's number in its task.")]
_Line = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]


class ThreadIn(Input):
    """A thread to open: on a line or a range, a file (no line), or the whole result (no path)."""

    text: Annotated[Storable, Field(min_length=1)] = Field(
        description="What you want to say.", examples=["Round half up, as the invoices do."]
    )
    path: Annotated[Storable, Field(max_length=4096)] = Field("", description="The file's path.")
    side: Side = Field(Side.NEW, description="`new`: a line after the change; `old`: one before it.")
    line: _Line | None = Field(None, description="The line, from 1.")
    first_line: _Line | None = Field(None, description="Where a range begins that ends at `line`.")

    def thread(self, where: str) -> NewThread:
        return NewThread(self.text, self.path, self.side, self.line, self.first_line, where)


class ReviewIn(Input):
    """A review. `request_changes` resumes the agent's session with all open threads."""

    verdict: ReviewVerdict = Field(description="What you conclude.", examples=["comment"])
    body: Storable = Field("", description="What you say about the whole.", examples=["Nearly there."])
    threads: list[ThreadIn] = Field(
        default_factory=list, max_length=MOST_THREADS, description="Comments on lines, files or the whole."
    )
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")] = Field(
        "", description="The result that you looked at; empty: the newest. Only the newest can be approved."
    )


class ReplyIn(Input):
    text: Annotated[Storable, Field(min_length=1)] = Field(
        description="Your reply; the thread is open again for the agent.", examples=["Please do."]
    )


class Resolution(Input):
    reopen: Flag = Field(False, description="Open it again instead.")


class Reviews(Schema):
    items: list[ReviewOut] = Field(description="The reviews, the oldest first.")
    threads: list[ThreadOut] = Field(description="The threads that were opened in the pull request.")


class Threads(Schema):
    items: list[ThreadOut] = Field(description="The threads in order.")
