"""JSON models of the user and their tokens."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tasks_app.models import ApiToken, Scope
from tasks_app.schemas.base import DateTime, Out, UserOut


class TokenOut(Out):
    """A personal API token, without its secret."""

    name: str = Field(description="The name, which says what it is for.")
    scopes: list[Scope] = Field(description="Permitted uses: read, answer, write, manage.")
    projects: list[str] | None = Field(description="The projects that it is restricted to; null for all.")
    expires_at: DateTime | None = Field(description="When it expires; null for never.")

    @staticmethod
    def resolve_projects(token: ApiToken) -> list[str] | None:
        return [project.name for project in token.projects.all()] if token.restricted else None


class TokenListed(TokenOut):
    id: int = Field(validation_alias="pk", description="The token's id.")
    made_at: DateTime = Field(description="When it was made.")
    last_used_at: DateTime | None = Field(description="When it was used last, to the minute.")
    last_used_ip_address: str = Field(description="The IP address from which it was used last.")


class Me(UserOut):
    email: str = Field(description="Your e-mail address.")
    is_admin: bool = Field(validation_alias="is_superuser", description="Whether you are a site admin.")
    token: TokenOut | None = Field(description="The token that was used; null with a browser's login.")


Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", examples=["09:00"])]


class SentBack(BaseModel):
    """Base of what is sent as it is returned, without rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HoursOfDay(SentBack):
    """When you work on a day of the week. Hours of a night belong to the day on which they begin."""

    begin: Clock = Field(description="From when.")
    end: Clock = Field(
        description="Until when, on the next day if not later than `begin`; 00:00 is the end of the day."
    )


class AbsenceOut(SentBack):
    """Days on which you do not work."""

    first: date = Field(description="The first day.")
    last: date = Field(description="The last day.")
    word: Annotated[str, Field(max_length=60, pattern=r"^[^\x00]*$")] = Field(
        "", description="A word for it that others see, such as holiday."
    )


class WorkingHoursOut(SentBack):
    """Your working hours and absences. Questions that you are asked wait for them."""

    week: Annotated[list[HoursOfDay | None], Field(min_length=7, max_length=7)] = Field(
        description="The hours of each day from Monday on; null on days on which you do not work."
    )
    absences: Annotated[list[AbsenceOut], Field(max_length=50)] = Field(description="Days off.")
    time_zone: Annotated[str, Field(max_length=64)] = Field(
        description="Your time zone, in which the hours are meant.", examples=["Europe/Berlin"]
    )


class AbsenceDays(Out):
    """Days off of a calendar."""

    first: date = Field(description="The first day.")
    last: date = Field(description="The last day.")


class AbsenceCalendarOut(Out):
    """The calendar of your absences. Its URL is a secret and not returned."""

    source: str = Field(description="The host of its URL, or the name of the uploaded file.")
    uploaded: bool = Field(description="Whether it is a file, which is read once.")
    read_at: DateTime | None = Field(description="When it was last read; null: not yet.")
    fault: str = Field(description="Why it cannot be read; empty if it can.")
    fault_since: DateTime | None = Field(description="Since when it cannot be read.")
    notes: list[str] = Field(description="What was passed over.")
    absences: list[AbsenceDays] = Field(description="The days off, in their order.")
