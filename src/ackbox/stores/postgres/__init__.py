"""The ledger in PostgreSQL: many instances on one database."""
