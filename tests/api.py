"""A script that calls the API with a token."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from tasks_app.models import Project, Scope, User
from tasks_app.services.accounts import make_token
from tests.people import acting

PROBLEM = "application/problem+json"


class Script:
    """Holds a token of that person with these scopes; all of them if none is named."""

    def __init__(self, user: User | None, *scopes: Scope, projects: list[Project] | None = None) -> None:
        self.headers: dict[str, str] = {}
        self._client = Client(raise_request_exception=False)
        if user:
            made = make_token("script", scopes or tuple(Scope), by=acting(user), projects=projects)
            self.token = made.token
            self.headers["Authorization"] = f"Bearer {made.secret}"

    def get(self, address: str, **query: Any) -> Any:
        return self._client.get(f"/api/v1{address}", query, headers=self.headers)

    def post(self, address: str, body: Any = None, **headers: str) -> Any:
        return self.send("post", address, body, **headers)

    def send(self, method: str, address: str, body: Any = None, **headers: str) -> Any:
        """`body`: a text as it is, anything else as JSON. Headers are named with `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        text = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        return self._client.generic(
            method.upper(),
            f"/api/v1{address}",
            text,
            content_type="application/json",
            headers={**self.headers, **sent},
        )
