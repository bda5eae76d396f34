"""Notify the web processes when a change was committed: through Redis, or through named pipes on SQLite."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import threading
from concurrent.futures import Future
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection, transaction
from django.db.models.signals import post_save
from redis.exceptions import TimeoutError as RedisTimeoutError

from tasks_app.core.wakeup import Wakeup
from tasks_app.models import Change, paths

logger = logging.getLogger(__name__)

GROUP = "live"

#: Seconds that one notification may take, and that the end of a process waits for its last one.
TIMEOUT_SECONDS = 1.0


class Notifier:
    """Notifies from any thread, and never makes a writer wait or fail. May lose notifications.

    An event loop in its own thread keeps one connection to Redis per process. `async_to_sync` from the
    writing thread leaks nothing either, but it makes a loop and a connection for every notification
    (2.5 ms measured, against 0.06 ms), and a Redis that hangs would hold up the writer.
    """

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._sending: Future[None] | None = None
        self._is_scheduled = False
        self._newest_id = 0

    def notify(self, change_id: int) -> None:
        """Announce the changes up to this id. A notification that is not sent yet covers this one as well."""
        with self._lock:
            self._newest_id = max(self._newest_id, change_id)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._sending = asyncio.run_coroutine_threadsafe(self._send(), self._start_loop())

    def close(self) -> None:
        """Give the last notification a moment to be sent, then close the connection."""
        with self._lock:
            sending, loop, thread = self._sending, self._loop, self._thread
            self._sending = self._loop = self._thread = None
        if sending and loop and thread:
            with contextlib.suppress(TimeoutError):
                sending.result(TIMEOUT_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(TIMEOUT_SECONDS)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the sending thread; the first call starts both."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run_and_close, args=[self._loop], name="live-notifier", daemon=True
            )
            self._thread.start()
        return self._loop

    async def _send(self) -> None:
        with self._lock:
            self._is_scheduled, newest_id = False, self._newest_id
        message = {"type": "live.changes", "upto": newest_id}
        try:
            await asyncio.wait_for(self._layer.group_send(GROUP, message), TIMEOUT_SECONDS)
        except TimeoutError:
            _log_failure(RedisTimeoutError(f"Redis did not respond within {TIMEOUT_SECONDS:g} s."))
        except Exception as error:
            _log_failure(error)


def _log_failure(error: Exception) -> None:
    # With the error, so that the log's filter can repeat it seldom while Redis is down.
    logger.warning("could not announce changes; web processes poll for them", exc_info=error)


def _notify_through_pipes(change_id: int) -> None:
    web_wakeup().notify()


def _run_and_close(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()  # The channel layer closes its connections together with the loop.


def web_wakeup() -> Wakeup:
    """Return the pipes of the web processes of this machine."""
    return Wakeup(paths.data_dir() / "wakeup" / "web")


def notify_on_commit() -> None:
    """Notify of every change that this process commits. Called once at start-up.

    With PostgreSQL and without Redis, web processes poll.
    """
    if settings.ENVIRONMENT.redis_url:
        notifier = Notifier(get_channel_layer())
        atexit.register(notifier.close)
        notify = notifier.notify
    elif connection.vendor == "sqlite":
        notify = _notify_through_pipes
    else:
        return

    def on_save(instance: Change, **_: object) -> None:
        transaction.on_commit(lambda: notify(instance.pk))

    post_save.connect(on_save, sender=Change, weak=False, dispatch_uid="live-notifier")
