"""The worker itself: its heartbeat, what its machine has, whether it takes tasks or leaves them to others."""
