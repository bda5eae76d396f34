"""Django's entry to the app."""

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Cat Herder"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Actions ring the worker, and the queue is above them: so the queue registers itself here."""
        from tasks_app import tasks
        from tasks_app.actions import ringing

        ringing.register(tasks.ring)
