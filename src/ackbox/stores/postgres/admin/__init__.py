"""The commands on a whole ledger: migrate, examine, copy, promote."""
