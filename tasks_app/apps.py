"""Django's entry to the app."""

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Cat Herder"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Actions ring the worker and open pages; both are above them, so they register themselves here."""
        from tasks_app import tasks
        from tasks_app.actions import ringing
        from tasks_app.live import bell

        ringing.register(tasks.ring)
        bell.connect()
