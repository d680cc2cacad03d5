SPIDER_MODULES = ["scrapy_walsh.spiders"]
ADDONS = {"scrapy_walsh.Addon": 500}

# Who sends the requests: put your own bot in place of this one, which exists nowhere. `walsh init`
# writes the policy page and the blocklist; docs/blocklist.md says what they are for.
WALSH_IDENTITY = {
    "product": "ExampleBot/1.0",
    "policy_url": "https://bot.example/policy.html",
    "blocklist_url": "https://bot.example/blocklist.json",
}
