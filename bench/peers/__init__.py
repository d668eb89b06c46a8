"""Queues on PostgreSQL, ackbox among them, as programs that are driven alike."""
