"""Where Django looks for the admin; it is in `web/admin/`."""

from tasks_app.web import admin

__all__ = ["admin"]
