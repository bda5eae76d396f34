"""Configuration of the Django app."""

import gc

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate, pre_migrate


class TasksConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Cat Herder"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect services with the queue and the live pages, which are in higher layers."""
        from tasks_app import tasks
        from tasks_app.core import process_memory
        from tasks_app.git import program
        from tasks_app.operations import health
        from tasks_app.services.questions import earlier_answers
        from tasks_app.services.workers import worker_notifier
        from tasks_app.web.accounts import signals  # noqa: F401 - connects receivers
        from tasks_app.web.live import wakeup

        process_memory.use_one_heap()
        worker_notifier.register(tasks.notify_worker)
        wakeup.notify_on_commit()
        program.memory_limit = settings.ENVIRONMENT.git_memory * 1024**2
        pre_migrate.connect(health.refuse_snapshot, sender=self)
        post_migrate.connect(earlier_answers.renew_index, sender=self)
        # The collector skips what is imported: looking at it takes up to 0.6 s of CPU time at the end of a
        # process alone. `catherder_site` switches collection off until here.
        gc.freeze()
        gc.enable()
