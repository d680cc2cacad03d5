"""What a site owner can tell from an access log: which promises the bot kept, broke, never met.

``accesslog`` reads a line, ``reading`` files of them. ``robots_rows``, ``pace_rows`` and ``judge``
are pure: log entries in, rows out. ``ledgers`` and ``match`` compare the log with the ledger.
"""
