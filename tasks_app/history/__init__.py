"""What happened: phases and how they changed, events of runs, the audit log, statistics.

`transitions` is the only writer of phases. Nothing here starts anything or decides what comes next.
"""
