"""What carries new events to the workers, before the database's own queue."""
