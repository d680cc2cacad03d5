"""Proof that the promises are kept: what judges, from outside, and never takes part in a crawl.

Only ``commands`` imports this package, inside the function that runs a command.
"""
