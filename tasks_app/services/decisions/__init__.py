"""Decisions of a project: making, changing and retiring them, where they hold, and what applies them.

Finding similar questions is `services/questions/earlier_answers.py`; what agents read of decisions is built
in `engine/prompts/values.py`. Nothing here runs git inside a transaction.
"""
