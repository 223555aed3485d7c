"""What is run: each module makes the rows of one kind of experiment."""
