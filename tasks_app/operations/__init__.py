"""Operating an installation: doctor, readiness, backup and restore. Nothing here works on tasks."""
