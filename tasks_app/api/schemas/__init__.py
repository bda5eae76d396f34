"""What the API takes, and pages of what it returns; the things themselves are in `reporting.schemas`.

The few schemas that one short module of `operations` needs stand in that module.
"""
