"""Prompts as pure functions of values."""

from pathlib import Path

#: The texts that ship with the portal.
SHIPPED_PROMPTS = Path(__file__).resolve().parent.parent / "prompts"
