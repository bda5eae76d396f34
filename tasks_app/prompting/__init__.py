"""Prompts as pure functions of values."""

from tasks_app.core.environment import shipped_folder

#: The texts that ship with the portal.
SHIPPED_PROMPTS = shipped_folder("prompts")
