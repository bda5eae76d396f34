"""Moving tasks: `advance`, leases, runs of steps, checks, recording, recovery, the sweeper.

The rows are the truth: everything here may be killed at any line, and be called twice. `turns.py` takes tasks
and `advance.py` moves them, through `runs/`; what both stand on (`lease.py`, `stopping.py` …) is beside them.
"""
