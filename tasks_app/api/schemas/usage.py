"""Input schemas about usage."""

from __future__ import annotations

from enum import StrEnum


class UsageGrouping(StrEnum):
    MODEL = "model"
    PROJECT = "project"
    PERSON = "person"
