"""A user's own account: profile, sessions, API tokens."""
