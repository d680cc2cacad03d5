"""Spiders that any project may list in SPIDER_MODULES."""
