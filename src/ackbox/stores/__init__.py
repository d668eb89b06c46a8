"""Adapters that keep the ledger. Only `ackbox.app` chooses one."""
