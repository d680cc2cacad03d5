"""``scrapy walsh report``: a run as one HTML page, from its ledger and the sources of the state.

``lanes.build`` reads a ledger three times: ``entries`` finds the runs, ``tally`` counts what
happened, and ``lanes`` collects what the pictures show. ``sources`` has what the state knows of the
sources, and ``owner`` the extract for a site's owner. ``findings`` says which promises the ledger
shows to hold. Then ``html`` renders the templates with them: ``pictures`` has the shapes of the
SVG, ``words`` the texts, and how numbers and times are written.
"""
