"""Projects: adding, moving, removing, fetching, settings, members and invitations."""
