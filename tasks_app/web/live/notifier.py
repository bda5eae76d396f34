"""Notify the web processes of committed changes: through Redis, or through named pipes of this machine."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models.signals import post_save
from redis import Redis
from redis.exceptions import RedisError

from tasks_app.core import wakeup
from tasks_app.models import Change, paths

logger = logging.getLogger(__name__)

#: The channel of Redis whose messages say nothing but that there are new changes.
CHANNEL = "cat-herder-changes"
#: Seconds that one notification may take, and that the end of a process waits for its last one.
TIMEOUT_SECONDS = 1.0


class RedisNotifier:
    """Notifies from any thread, and never makes a writer wait or fail. May lose notifications.

    A thread sends them, so that a Redis that hangs does not hold up a writer. One that is not sent yet stands
    for all that come meanwhile.
    """

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
        )
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        self._wanted.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="live-notifier", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Give the last notification a moment to be sent."""
        self._is_closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(TIMEOUT_SECONDS)

    def _send_all(self) -> None:
        while not self._is_closing:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self._redis.publish(CHANNEL, b"")
            except (RedisError, OSError) as error:
                # With the error, so that the log's filter can repeat it seldom while Redis is down.
                logger.warning("could not announce changes; web processes poll for them", exc_info=error)
        self._redis.close()


def web_pipes() -> Path:
    """Return the folder with the pipes of the web processes of this machine."""
    return paths.data_dir() / "wakeup" / "web"


def _notify_this_machine() -> None:
    wakeup.notify(web_pipes())


def notify_on_commit() -> None:
    """Notify of every change that this process commits. Called once at start-up."""
    if settings.ENVIRONMENT.redis_url:
        notifier = RedisNotifier(settings.ENVIRONMENT.redis_url)
        atexit.register(notifier.close)
        notify: Callable[[], None] = notifier.notify
    else:
        notify = _notify_this_machine

    def on_save(**_: object) -> None:
        transaction.on_commit(notify)

    post_save.connect(on_save, sender=Change, weak=False, dispatch_uid="live-notifier")
