"""``scrapy walsh report``: a run as one HTML page, from its ledger and the sources of the state.

``runs`` finds the runs of a ledger. Then ``verify`` reads it, and shows each line that it has
judged to ``tally``, which counts what happened, or to ``owner``, which keeps the extract for a
site's owner. ``sources`` has what the state knows of the sources. ``html`` renders the templates
with them; ``words`` has the texts, and how numbers and times are written.
"""
