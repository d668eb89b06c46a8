"""The comparisons on PostgreSQL, all on one server of their own."""
