"""The revisions of the ledger's schema, each by its number; those that were released never change."""
