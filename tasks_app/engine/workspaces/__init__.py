"""A task's workspace: making it, its setup, recording it as a commit, merging in it, and removing it."""
