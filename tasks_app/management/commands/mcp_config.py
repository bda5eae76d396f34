"""`cat-herder mcp_config`: the line that adds this portal to a coding agent."""

from __future__ import annotations

from typing import Any

from tasks_app.absolute_urls import absolute_url
from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.services.commands import mcp_command


class Command(TerminalCommand):
    help = """\
Prints the command that adds this portal to Claude Code, as an MCP server. Put one of your API tokens in the
place of cath_…: create it in the portal, under My settings, API tokens."""
    examples = """\
examples:
  cat-herder mcp_config"""
    requires_tables = False

    def work(self, options: dict[str, Any]) -> int:
        self.stdout.write(mcp_command(absolute_url("")))
        return Exit.DONE
