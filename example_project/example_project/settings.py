SPIDER_MODULES = ["scrapy_walsh.spiders"]
ADDONS = {"scrapy_walsh.Addon": 500}
WALSH_IDENTITY = "walsh-research"  # only the operator of wal.sh/bot; else: docs/identity.md
