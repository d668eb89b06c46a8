"""Adapters that turn facts into logs and metrics. Only `ackbox.app` chooses them."""
