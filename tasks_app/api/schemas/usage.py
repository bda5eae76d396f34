"""What is taken about usage."""

from __future__ import annotations

from enum import StrEnum


class ToldApart(StrEnum):
    MODEL = "model"
    PROJECT = "project"
    PERSON = "person"
