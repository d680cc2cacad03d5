"""The documents that the gates decide by, and the reading of what may be costly to read."""
