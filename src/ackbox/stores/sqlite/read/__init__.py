"""The queries, on connections that cannot write."""
