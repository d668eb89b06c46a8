"""Benchmarks of ackbox against its bounds; `python -m bench --help` says what can be run."""
