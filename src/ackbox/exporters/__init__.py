"""Adapters that tell the world what happened. Only `ackbox.app` chooses them."""
