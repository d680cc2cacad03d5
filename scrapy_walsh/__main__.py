"""``python -m scrapy_walsh SUBCOMMAND``."""

import sys

from scrapy_walsh.commands.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
