"""The schema, as numbered plain SQL that only ever adds."""
