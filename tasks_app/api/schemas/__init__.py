"""What the API takes, and pages of what it returns; the things themselves are in `reporting.schemas`."""
