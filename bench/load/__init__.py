"""Load generators, each a process of its own, so that they never share a GIL with a server."""
