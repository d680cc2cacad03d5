"""What `shub deploy` and `scrapyd-deploy` pack into an egg."""

from setuptools import find_packages, setup

setup(
    name="example-project",
    version="1.0",
    packages=find_packages(),
    package_data={"example_project": ["*.toml"]},
    entry_points={"scrapy": ["settings = example_project.settings"]},
)
