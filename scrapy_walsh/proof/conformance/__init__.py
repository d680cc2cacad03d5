"""Conformance: real crawls of the sandbox, judged from the server's log; the lab; the record."""
