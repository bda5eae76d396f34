"""Keeping an installation healthy: doctor, readiness, backup and restore.

Nothing here works on tasks, and no page or agent calls it but for the readiness of the portal.
"""
