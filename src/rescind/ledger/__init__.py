"""The durable record of a run: the contract of a ledger, and the stores that keep it."""
