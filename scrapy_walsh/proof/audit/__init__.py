"""The evidence that a site owner has in an access log: the promises that the bot kept, broke, or
never met.

``accesslog`` reads a line, ``reading`` files of them. ``robots_rows``, ``pace_rows`` and ``judge``
are pure: log entries in, rows out. ``ledgers`` and ``match`` compare the log with the ledger.
"""
