"""What commands are made of: working on a task in this terminal, answering at the prompt, tables.

The commands themselves are in `management/commands/`.
"""
