"""What fails on our own side, or is done to us by the project: no gate opens, and no run is green.

``table.py`` has a row for each such fault. A row is a real crawl on loopback (``world.py``), in
whose process the fault is made (``inside.py``), and a healthy one after it; both are judged by the
server's log (``judge.py``). ``python -m tests.faults`` runs all rows, ``test_faults.py`` the quick
ones, and ``page.py`` makes README.md from them.
"""
