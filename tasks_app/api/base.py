"""Types and base classes of all schemas."""

from __future__ import annotations

from typing import Annotated

from ninja import Path, Schema
from pydantic import ConfigDict, Field

#: The largest id that the databases can store.
LARGEST = 2**63 - 1
_NUMBER = {"ge": 1, "le": LARGEST}

Number = Annotated[int, Field(**_NUMBER)]
TaskId = Annotated[int, Path(**_NUMBER, description="The task's id.")]
SequenceId = Annotated[int, Path(**_NUMBER, description="The sequence's id.")]
QuestionId = Annotated[int, Path(**_NUMBER, description="The question's id.")]
InvitationId = Annotated[int, Path(**_NUMBER, description="The invitation's id.")]
TargetId = Annotated[int, Path(**_NUMBER, description="The target's id.")]
DeliveryId = Annotated[int, Path(**_NUMBER, description="The delivery's id.")]
TokenId = Annotated[int, Path(**_NUMBER, description="The token's id.")]
DecisionNumber = Annotated[
    int, Path(ge=1, le=2**31 - 1, description="The number of the decision: 17 for D-17.")
]
Position = Annotated[int, Path(ge=1, le=32767, description="The step's position in the pipeline, from 1.")]
ProjectName = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$", description="The project's name, for example `sample`.")
]
Username = Annotated[str, Path(pattern=r"^[A-Za-z0-9_@.+-]{1,150}$", description="The user name.")]
#: Strict types in a body: 0 and "no" must not pass as false, nor true as 1.
Flag = Annotated[bool, Field(strict=True)]
ExactNumber = Annotated[int, Field(**_NUMBER, strict=True)]
Threshold = Annotated[int, Field(ge=0, le=5, strict=True)]
#: PostgreSQL stores no NUL.
Storable = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class Input(Schema):
    """Base of request bodies: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Fault(Schema):
    where: str = Field(description="The place of the error, for example `body.threshold` or `task:2`.")
    message: str = Field(description="What is wrong there.")


class Problem(Schema):
    """Problem details, RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind of problem: a URL that explains it.")
    title: str = Field(description="The kind in a few words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong in this case, for people.")
    errors: list[Fault] = Field(description="For input that is not usable: each error and its place.")
