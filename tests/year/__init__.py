"""A year of mornings: the real package, day after day, under a virtual clock.

``world`` is the network and its sources, ``schedule`` the days, ``machine`` what runs them
(``clock``, ``wire``: what is not real of it), ``judge`` what is asked of the servers' log.
"""
