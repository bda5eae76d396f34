"""Answering questions: the answer and its outcome, earlier answers to like questions, taking one back.

What holds beyond one task is in `decisions/`.
"""
