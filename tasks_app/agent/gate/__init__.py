"""The gate: the program that decides inside the sandbox about each tool call, and its parsers.

Standard library only: its modules are copied into the folder of each run (`agent/run_setup.py`). Validation
uses the same parsers, so that it predicts exactly what the gate does.
"""
