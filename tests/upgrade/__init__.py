"""An upgrade from 0.1.0, in a process of its own: see `tests/integration/test_upgrade.py`."""
