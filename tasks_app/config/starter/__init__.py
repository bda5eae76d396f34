"""The files that a repository needs: settings, a first task, permissions, prompts. Free of Django."""

from tasks_app.config.starter.files import (
    Choices,
    Outcome,
    StarterFile,
    Written,
    settings_text,
    starter_files,
    write_all,
)
