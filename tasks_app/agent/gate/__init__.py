"""The gate: the program that decides inside the sandbox about each tool call, and its parsers.

Standard library only: its modules are copied into the folder of each run (`agent/rundir.py`). Validation uses
the same parsers, so that what it promises is what the gate does.
"""
