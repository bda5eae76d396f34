"""The record of what happened: transitions of phases, events of runs, the audit log.

`transitions` is the only writer of phases. Nothing here starts anything or decides what comes next.
"""
