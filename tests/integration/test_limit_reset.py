"""Limits with an API key (P8): the real CLI behind the API key proxy, which sees when they reset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings

from tasks_app import composition
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.connection import Connection
from tasks_app.agent.port import Ending
from tasks_app.agent.proxy import RunMeter
from tasks_app.sandbox import Sandbox
from tests.agents import Bench, rehearsal


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The portal's own way to the model with an API key; the rehearsal stands where the API would."""
    with rehearsal(tmp_path) as server:
        keyed = {"anthropic_api_key": "sk-real", "anthropic_base_url": server.url}
        monkeypatch.setattr(settings, "ENVIRONMENT", settings.ENVIRONMENT.model_copy(update=keyed))
        composition._proxy.cache_clear()
        try:
            yield Bench(ClaudeAgent(Sandbox(None), composition.connect), tmp_path, server)
        finally:
            composition._proxy().stop()
            composition._proxy.cache_clear()


def test_a_limit_has_the_time_that_the_answer_named(bench: Bench) -> None:
    before = datetime.now(UTC)
    result = bench.start("overloaded")
    after = datetime.now(UTC)
    assert result.ending is Ending.LIMIT
    assert result.resets_at is not None
    assert before <= result.resets_at - timedelta(hours=1) <= after


def test_a_limit_without_a_reset_time_has_none(bench: Bench) -> None:
    result = bench.start("overloaded-until-unknown")
    assert result.ending is Ending.LIMIT
    assert result.resets_at is None


def test_a_run_that_went_well_has_no_time(tmp_path: Path) -> None:
    """Even if it was told on its way to wait for a moment."""
    with rehearsal(tmp_path) as server:
        meter = RunMeter(resets_at=datetime.now(UTC))
        told = Connection(api_key="rehearsal", base_url=server.url, meter=meter)
        bench = Bench(ClaudeAgent(Sandbox(None), lambda order: nullcontext(told)), tmp_path, server)
        result = bench.start("no-questions")
    assert (result.ending, result.resets_at) == (Ending.FINISHED, None)
