"""The identity of a database, and random keys for the names of folders."""

from __future__ import annotations

import secrets
from uuid import uuid4

from django.db import models
from django.db.models import Q


class Installation(models.Model):
    """The single row that identifies this database.

    Every data directory that belongs to it holds the same id in a file, so that a database and a directory
    of two installations are never used together.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    identity = models.UUIDField(default=uuid4, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_installation")]

    def __str__(self) -> str:
        return str(self.identity)


def new_folder_key() -> str:
    """Return a random part for a row's folder name, because ids can be reused and folders must not."""
    return secrets.token_hex(8)
