"""Django's entry to the app."""

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Cat Herder"
    default_auto_field = "django.db.models.BigAutoField"
