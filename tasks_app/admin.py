"""The admin site, imported here because Django looks for it here; it is in `web/admin/`."""

from tasks_app.web import admin

__all__ = ["admin"]
