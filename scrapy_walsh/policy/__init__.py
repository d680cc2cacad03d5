"""All that is decided, as pure functions and values. ``chain`` puts the decisions into their order.

Nothing in this package imports Scrapy or Twisted, or reads a clock, a file, a socket or a source of
randomness. ``now`` and ``rand`` are arguments, documents come in as bytes, and "I cannot decide
yet" is a value (``chain.NeedDocument``). ``tests/policy/test_purity.py`` checks this.
"""
