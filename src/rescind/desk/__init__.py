"""A small web application beside a history: to watch a run, to ask, to decide. It never trains, and signs nothing."""
