"""Django works on a bounded number of requests at once; the others wait in turn."""

from __future__ import annotations

import asyncio

import pytest
from django.http import HttpRequest, HttpResponse

from catherder_site.request_slots import MOST_AT_ONCE, Respond, request_slots

MORE = 5


class Pages:
    """Pages that each wait until they are told to respond."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go_on = asyncio.Event()

    async def respond(self, request: HttpRequest) -> HttpResponse:
        self.begun.append(request.path)
        await self.go_on.wait()
        return HttpResponse(request.path)


def ask(respond: Respond, path: str) -> asyncio.Task[HttpResponse]:
    request = HttpRequest()
    request.path = path

    async def asked() -> HttpResponse:
        response = await respond(request)
        assert isinstance(response, HttpResponse)
        return response

    return asyncio.ensure_future(asked())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_more_than_the_bound_wait_in_the_order_in_which_they_came() -> None:
    pages = Pages()
    respond = request_slots(pages.respond)
    paths = [f"/{number}" for number in range(MOST_AT_ONCE + MORE)]
    asked = [ask(respond, path) for path in paths]
    await settle()
    assert pages.begun == paths[:MOST_AT_ONCE]
    pages.go_on.set()
    assert [response.text for response in await asyncio.gather(*asked)] == paths
    assert pages.begun == paths


@pytest.mark.asyncio
async def test_a_client_that_goes_away_frees_no_slot_while_its_request_is_worked_on() -> None:
    pages = Pages()
    respond = request_slots(pages.respond)
    asked = [ask(respond, f"/{number}") for number in range(MOST_AT_ONCE)]
    await settle()
    waiting, later = ask(respond, "/gives-up"), ask(respond, "/later")
    await settle()
    for one in (*asked, waiting):
        one.cancel()
    await settle()
    assert len(pages.begun) == MOST_AT_ONCE and not later.done()
    pages.go_on.set()
    assert (await later).text == "/later"
    assert "/gives-up" not in pages.begun


@pytest.mark.asyncio
async def test_a_page_that_fails_frees_its_slot() -> None:
    async def fail(request: HttpRequest) -> HttpResponse:
        raise ValueError(request.path)

    respond = request_slots(fail)
    asked = [ask(respond, f"/{number}") for number in range(MOST_AT_ONCE + MORE)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(error) for error in failed] == [f"/{number}" for number in range(MOST_AT_ONCE + MORE)]
