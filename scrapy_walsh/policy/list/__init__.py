"""R3: the operator's blocklist: which hosts have opted out, how it is kept, and its validation."""
