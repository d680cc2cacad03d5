"""``scrapy walsh SUBCOMMAND``, and ``python -m scrapy_walsh SUBCOMMAND`` outside a project."""
