"""``scrapy walsh report``: a run as one HTML page, from its ledger and the sources of the state.

``lanes.build`` reads a ledger three times and makes frozen values: ``entries`` finds the runs,
``tally`` counts what happened (with ``spacing`` for the gaps between requests), and ``lanes``
collects what the pictures show. ``sources`` has what the state knows of the sources, and ``owner``
the extract for a site's owner. ``findings`` says which promises the ledger shows to hold. Then
``html`` renders the templates with them: ``sections`` has the texts and tables, ``pictures`` the
shapes of the SVG, ``words`` the formats of numbers and times.
"""
