"""R2, and what a site says about use: one robots.txt, as ``file`` puts it together.

``fetch`` says what an answer to a request for one means.
"""

from scrapy_walsh.policy.robots.file import parse_robots

__all__ = ["parse_robots"]
