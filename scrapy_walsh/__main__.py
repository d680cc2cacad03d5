"""``python -m scrapy_walsh SUBCOMMAND``."""

import sys

from scrapy_walsh.commands.main import run

if __name__ == "__main__":
    sys.exit(run())
