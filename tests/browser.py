"""A browser in which somebody is logged in."""

from __future__ import annotations

from typing import Any

from django.test import Client

from tasks_app.models import User


def signed_in(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client
