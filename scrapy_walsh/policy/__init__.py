"""All decisions, as pure functions and values. ``chain`` makes them in their order.

Nothing in this package imports Scrapy or Twisted, or reads a clock, a file, a socket or a source of
randomness. ``now`` and ``rand`` are arguments, and documents are bytes. If a gate cannot decide
yet, it returns a value, ``chain.NeedDocument``. ``tests/policy/test_purity.py`` checks this.
"""
