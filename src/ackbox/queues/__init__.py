"""Queues that bring new events to the workers faster than the database's own queue does."""
