"""Read by each interpreter that has this folder on its path: crawls that Scrapy's tests start."""

import os

if "WALSH_SUITE" in os.environ:
    import walsh_on

    walsh_on.switch_on(os.environ["WALSH_SUITE"])
