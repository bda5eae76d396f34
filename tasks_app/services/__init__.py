"""What people do: create, start, answer, cancel, retry, configure, invite; and what they look for and count.

Each action is one transaction with its audit entry and its notice. Pages, API and commands call the same
services. What is done with tasks and sequences stands beside the packages.
"""
