"""What a ServerApp imports: a recorded strategy, its run, and the engine behind it. No client needs any of it."""
