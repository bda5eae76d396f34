"""Sessions in the database, under the hash of their key. Any cookie can be looked up, even garbage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db
from django.utils import timezone

from tasks_app.models import BrowserSession
from tasks_app.models.browser_session import hash_session_key

#: How often the time of the last request is stored.
SEEN_INTERVAL = timedelta(minutes=1)


class SessionStore(db.SessionStore):
    """Fills the columns of a row from the session's data, so that they follow the session to a new key."""

    _seen_at: datetime | None = None

    @classmethod
    def get_model_class(cls) -> Any:
        return BrowserSession

    def _get_session_from_db(self) -> Any:
        row = self._stored_session().first() if self.session_key else None
        self._seen_at = row.seen_at if row else None
        if row is None:
            self._session_key = None
        return row

    async def _aget_session_from_db(self) -> Any:
        row = await self._stored_session().afirst() if self.session_key else None
        if row is None:
            self._session_key = None
        return row

    def _stored_session(self) -> Any:
        return self.model.objects.filter(
            pk=hash_session_key(self.session_key or ""), expire_date__gt=timezone.now()
        )

    def exists(self, session_key: str) -> bool:
        return bool(super().exists(hash_session_key(session_key)))

    async def aexists(self, session_key: str) -> bool:
        return bool(await super().aexists(hash_session_key(session_key)))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        return self._with_columns(data, super().create_model_instance(data))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        return self._with_columns(data, await super().acreate_model_instance(data))

    def _with_columns(self, data: dict[str, Any], row: Any) -> BrowserSession:
        row.session_key = hash_session_key(row.session_key)
        row.user_id = data.get(SESSION_KEY)
        row.address = data.get("address", "")
        row.browser = data.get("browser", "")
        if begun := data.get("begun"):
            row.begun_at = datetime.fromisoformat(begun)
        assert isinstance(row, BrowserSession)  # noqa: S101 (for the type checker)
        return row

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            self.model.objects.filter(pk=hash_session_key(key)).delete()

    async def adelete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            await self.model.objects.filter(pk=hash_session_key(key)).adelete()

    def mark_seen(self) -> None:
        """Store that the session was used now, at most once a minute."""
        if self._seen_at and timezone.now() - self._seen_at > SEEN_INTERVAL:
            self._stored_session().update(seen_at=timezone.now())
