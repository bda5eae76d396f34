"""Building blocks of the commands: running a task in this terminal, prompts for answers, tables.

The commands themselves are in `management/commands/`.
"""
