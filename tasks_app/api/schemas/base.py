"""What all schemas have in common."""

from __future__ import annotations

from typing import Annotated

from ninja import Path, Schema
from pydantic import ConfigDict, Field

#: Numbers of rows. Larger ones cannot be stored, and so cannot be found.
LARGEST = 2**63 - 1
_NUMBER = {"ge": 1, "le": LARGEST}

Number = Annotated[int, Field(**_NUMBER)]
TaskId = Annotated[int, Path(**_NUMBER, description="The task's number.")]
SequenceId = Annotated[int, Path(**_NUMBER, description="The sequence's number.")]
QuestionId = Annotated[int, Path(**_NUMBER, description="The question's number.")]
InvitationId = Annotated[int, Path(**_NUMBER, description="The invitation's number.")]
TargetId = Annotated[int, Path(**_NUMBER, description="The target's number.")]
DeliveryId = Annotated[int, Path(**_NUMBER, description="The delivery's number.")]
TokenId = Annotated[int, Path(**_NUMBER, description="The token's number.")]
Position = Annotated[int, Path(ge=1, le=32767, description="The step's place in the pipeline, from 1.")]
ProjectName = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$", description="The project's name, as in `sample`.")
]
Username = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_@.+-]{1,150}$", description="The name with which the person logs in.")
]
#: In a body: neither 0 nor "no" is false, and true is no number.
Flag = Annotated[bool, Field(strict=True)]
ExactNumber = Annotated[int, Field(**_NUMBER, strict=True)]
Threshold = Annotated[int, Field(ge=0, le=5, strict=True)]
#: PostgreSQL stores no NUL.
Storable = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class Input(Schema):
    """What a caller sends: a field that is not known is an error and not passed over."""

    model_config = ConfigDict(extra="forbid")


class Fault(Schema):
    where: str = Field(description="The place of the fault, for example `body.threshold` or `task:2`.")
    message: str = Field(description="What is wrong there.")


class Problem(Schema):
    """Problem details, RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind of problem; the address explains it.")
    title: str = Field(description="The kind in a few words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong this time, for people.")
    errors: list[Fault] = Field(description="For input that is not usable: each fault and its place.")
