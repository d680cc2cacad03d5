"""The operator's blocklist: its entries, its state in a crawl, and its validation (R3)."""
