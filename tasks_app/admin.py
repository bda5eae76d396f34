"""Django looks for the admin here; it is in `web/admin/`."""

from tasks_app.web import admin

__all__ = ["admin"]
