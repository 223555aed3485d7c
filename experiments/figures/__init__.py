"""The figures, a folder each: what to run, what came out, how it is drawn, what it says."""
