"""The statements that change the ledger: ingest, claims, settlement, operators, retention."""
