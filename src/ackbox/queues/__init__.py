"""Queues that tell one instance of each new event, so that not all of them query the database. The
events and claims stay in the database."""
