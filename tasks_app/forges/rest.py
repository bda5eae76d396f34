"""What the adapters have in common: requests whose errors are in words for people, and lists in pages."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tasks_app.core.allowed_networks import IpAddressRefused
from tasks_app.forges.http import refused, unreachable
from tasks_app.forges.port import ForgeError, RemotePullRequest
from tasks_app.forges.reading import MOST_PAGES, PAGE, Json, readable


class RestForge(ABC):
    """A forge with a REST API. An adapter says how a request is sent and how a pull request is read."""

    name: ClassVar[str]
    page_size: ClassVar[int] = PAGE
    #: The parameter that has the size of a page.
    size_parameter: ClassVar[str] = "per_page"

    @abstractmethod
    def _send(self, verb: str, path: str, query: Json | None, body: Json | None) -> Any:
        """Return the JSON of a successful answer. Raises what `_refused` made, or an error of `requests`."""

    @staticmethod
    @abstractmethod
    def _read_pull_request(raw: Json) -> RemotePullRequest: ...

    def _call(self, verb: str, path: str, body: Json | None = None, *, query: Json | None = None) -> Any:
        try:
            return self._send(verb, path, query, body)
        except (OSError, IpAddressRefused) as error:
            raise unreachable(self.name, error) from None

    def _refused(self, status: int, said: str, headers: Mapping[str, str]) -> ForgeError:
        return refused(self.name, status, said, headers, now=time.time())

    def _list(
        self, path: str, query: Json | None = None, *, of: Callable[[Any], list[Json]] = lambda answer: answer
    ) -> list[Json]:
        """Return the entries of up to MOST_PAGES pages; `of` takes those of one page out of the answer."""
        found: list[Json] = []
        for page in range(1, MOST_PAGES + 1):
            sized = {**(query or {}), self.size_parameter: self.page_size, "page": page}
            answer = self._call("GET", path, query=sized)
            with readable(self.name):
                entries = of(answer)
                found += entries
            if len(entries) < self.page_size:
                break
        return found

    def _pull_request(self, raw: Json) -> RemotePullRequest:
        with readable(self.name):
            return self._read_pull_request(raw)
