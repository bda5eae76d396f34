"""Through what people act: the web, a terminal, the API, or a program that they use."""

from __future__ import annotations

from django.db import models


class Channel(models.TextChoices):
    WEB = "web", "web"
    TERMINAL = "terminal", "terminal"
    API = "api", "API"
    #: What a person replied in a form that a program showed them, and what a program passed by itself: both
    #: over the Model Context Protocol.
    MCP_FORM = "mcp_form", "MCP form"
    MCP = "mcp", "MCP"
    #: A decision of the project, applied by the portal: see `services/decisions/applying.py`.
    DECISION = "decision", "decision"
    #: The last rung of the ladder, when nobody had answered: see `services/questions/ladder.py`.
    RULE = "rule", "rule"


def through(channel: str, program: str = "") -> str:
    """Return a channel as people read it behind the name of a person: `in the web`, `through Claude Code`."""
    special = {
        **dict.fromkeys(("", Channel.DECISION, Channel.RULE), ""),
        Channel.API: "through the API",
        Channel.MCP_FORM: f"through {program}",
        Channel.MCP: f"through {program}, written by the program",
    }
    return special.get(channel, f"in the {channel}")
