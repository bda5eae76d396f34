"""What the adapters have in common: requests whose errors are in words for people, and lists in pages."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import requests

from tasks_app.core.allowed_networks import IpAddressRefused
from tasks_app.forges.http import AnswerTooLong, refused, unreachable
from tasks_app.forges.port import ForgeError, RemotePullRequest
from tasks_app.forges.reading import PAGE, Json, all_pages, readable


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
        except (requests.RequestException, IpAddressRefused, AnswerTooLong, OSError) as error:
            raise unreachable(self.name, error) from None

    def _refused(self, status: int, said: str, headers: Mapping[str, str]) -> ForgeError:
        return refused(self.name, status, said, headers, now=time.time())

    def _list(
        self, path: str, query: Json | None = None, *, of: Callable[[Any], list[Json]] = lambda answer: answer
    ) -> list[Json]:
        """Return the entries of all pages; `of` takes those of one page out of the answer."""

        def page_of(page: int) -> list[Json]:
            sized = {**(query or {}), self.size_parameter: self.page_size, "page": page}
            answer = self._call("GET", path, query=sized)
            with readable(self.name):
                return of(answer)

        return all_pages(page_of, size=self.page_size)

    def _pull_request(self, raw: Json) -> RemotePullRequest:
        with readable(self.name):
            return self._read_pull_request(raw)
