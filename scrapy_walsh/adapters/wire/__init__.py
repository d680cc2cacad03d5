"""The last steps before a request is sent: its turn, its tags and its signature."""
