"""Pure policy: decides, and does nothing else.

Nothing in this package imports Scrapy or Twisted, reads a clock, a file, a socket or a
source of randomness: ``now`` and ``rand`` are arguments, documents arrive as bytes, and
"I cannot decide yet" is a value (``chain.NeedDocument``). A test holds this.
"""
