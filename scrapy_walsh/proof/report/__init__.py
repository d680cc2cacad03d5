"""A run as one page: what a ledger and a source report say, drawn and tabled."""
