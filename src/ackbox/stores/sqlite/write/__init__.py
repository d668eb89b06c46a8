"""The operations of the writer thread: ingest, claims, settlement, operators, retention."""
