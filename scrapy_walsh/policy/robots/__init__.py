"""A robots.txt: its rules (R2) and its statements about use. ``file`` puts them together.

``fetch`` interprets an answer to a request for a robots.txt.
"""

from scrapy_walsh.policy.robots.file import parse_robots

__all__ = ["parse_robots"]
