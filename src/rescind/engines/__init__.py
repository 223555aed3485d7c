"""Who trains: the contract of an engine, the loop that records its rounds, and the engines themselves."""
