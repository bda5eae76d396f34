"""Notifications: which events make one for whom, and delivery by e-mail, webhook and chat."""
