"""The stores that hold the ledger. Only `ackbox.app` imports and chooses one."""
