"""R9: what an answer is, and how its links are read."""
