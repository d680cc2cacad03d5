"""Sphinx builds the site of these pages with this: ``make docs``. It fetches nothing.

A code host shows the same Markdown. This file settles the differences:
links that leave ``docs/``, links that are called by the name of a file, anchors that are written as
HTML, drawings, and where a long name may be broken.
"""

from __future__ import annotations

import hashlib
import html
import re
import textwrap
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util import logging

from scrapy_walsh import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

project = "scrapy-walsh"
author = "the scrapy-walsh authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]
#: A heading of a page, and a word by which a search finds it. Sphinx's search leaves out numbers.
SEARCHED = {"faq": ("## Why is there nothing new (304)?", "304")}
#: Pages that only links lead to: the menu leaves them out.
OUTSIDE_THE_MENU = {"performance", "versions"}
# A link to a type of Python's or Scrapy's has no target here: their inventories are on the network.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!scrapy_walsh).*")]

highlight_language = "text"  # of a block that names none: output, a crontab
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block"]

# What a reader types or writes into a file; output has no button.
copybutton_selector = "div.highlight:not(.highlight-text *) > pre"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_display_short_literal_types = True

html_theme = "furo"
html_search_scorer = str(DOCS / "search.js")
html_title = f"scrapy-walsh {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view"],
}

logger = logging.getLogger(__name__)

_OUTWARD = re.compile(r"\]\(((?:\.\./)+[^)\s]*)\)")
_BY_FILE_NAME = re.compile(r"\[[\w./-]+\.md\](?=\([\w./-]+\.md[#)])")
#: In a command that is typed; in ``ORGANISATION/REPOSITORY`` it is another's.
_OF_REPOSITORY = re.compile(r"(?<![\w/])REPOSITORY\b")
#: Inline code, as Sphinx writes it.
_NAME = re.compile(r'(?<=<span class="pre">)[^<]+')
#: A code of ``decisions/``, as a word of its own.
_CODE = re.compile(r"(?<![\w.-])([RDT][0-9]{1,2}(?:\.[0-9]+)?)(?![\w-])")
_ANCHOR = re.compile(r'<a id="([^"]+)">')


def lead_outward(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Links to files of the repository that are no page of the site lead to the code host.

    One that is called "robots.md" in the text gets the title of that page. ``REPOSITORY`` is the
    repository's address.
    """
    here = (DOCS / docname).parent

    def absolute(link: re.Match[str]) -> str:
        path, _, anchor = link[1].partition("#")
        target = (here / path).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        place = target.relative_to(ROOT).as_posix()
        return f"]({REPOSITORY}/{kind}/main/{place}{anchor and '#' + anchor})"

    text = _OF_REPOSITORY.sub(REPOSITORY, source[0])
    if docname in SEARCHED:
        heading, word = SEARCHED[docname]
        if heading not in text:
            logger.warning("%s has no heading %s", docname, heading)
        text = text.replace(heading, f"```{{index}} {word}\n```\n\n{heading}")
    source[0] = _BY_FILE_NAME.sub("[]", _OUTWARD.sub(absolute, text))


def know_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Let links find ``<a id="d8"></a>``, as they find headings. No two pages share an anchor.

    A page outside the menu is marked as such: Sphinx would warn of it.
    """
    name = app.env.docname
    if name in OUTSIDE_THE_MENU:
        app.env.metadata[name]["orphan"] = ""
    slugs = app.env.metadata[name].setdefault("myst_slugs", {})
    labels = app.env.domains.standard_domain
    for node in doctree.findall(nodes.raw):
        for anchor in _ANCHOR.findall(node.astext()):
            slugs[anchor] = (node.line or 1, anchor, anchor.upper())
            labels.anonlabels[anchor] = (name, anchor)
            labels.labels[anchor] = (name, anchor, anchor.upper())


def link_codes(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """A code in the text, such as R4, R8.2 or D13, links to its definition."""
    labels = app.env.domains.standard_domain.anonlabels
    apart = (nodes.reference, nodes.title, nodes.FixedTextElement, nodes.literal)
    for text in [node for node in doctree.findall(nodes.Text) if _CODE.search(node)]:
        parent = text.parent
        ancestor = parent
        while ancestor is not None and not isinstance(ancestor, apart):
            ancestor = ancestor.parent
        if ancestor is not None:
            continue
        parts: list[nodes.Node] = []
        for part in _CODE.split(text):
            page, anchor = labels.get(part.lower(), ("", ""))
            if page in ("", docname):
                parts.append(nodes.Text(part))
            else:
                link = f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
                parts.append(nodes.reference("", part, internal=True, refuri=link))
        place = parent.index(text)
        parent[place : place + 1] = parts


def show_drawings(app: Sphinx, doctree: nodes.document) -> None:
    """In place of each block of Mermaid stands the picture that was drawn of it.

    ``docs/pictures.py`` draws them. One whose text was changed since is a warning.
    """
    name = app.env.docname
    for number, block in enumerate(
        [node for node in doctree.findall(nodes.literal_block) if node.get("language") == "mermaid"]
    ):
        path = DOCS / "pictures" / f"{name}-{number + 1}.svg"
        digest = hashlib.sha256(block.astext().strip().encode()).hexdigest()
        if not path.exists() or digest not in path.read_text():
            logger.warning(
                "%s does not show this drawing: run docs/pictures.py", path.name, location=block
            )
        image = nodes.image(uri=f"/pictures/{path.name}", alt=f"drawing {number + 1}")
        image["classes"].append("drawing")
        # A phone shows it small; a click shows it alone.
        alone = "../" * name.count("/") + f"_images/{path.name}"
        block.replace_self(nodes.reference("", "", image, refuri=alone))


def show_dark_pictures(_app: Sphinx, doctree: nodes.document) -> None:
    """Add the picture for the dark theme (``NAME-dark.png``), if there is one."""
    for image in list(doctree.findall(nodes.image)):
        path = Path(image["uri"])
        dark = path.with_name(f"{path.stem}-dark{path.suffix}")
        if (DOCS / "pictures" / dark.name).exists():
            dark_image = image.deepcopy()
            dark_image["uri"] = str(dark)
            image["classes"].append("only-light")
            dark_image["classes"].append("only-dark")
            image.parent.insert(image.parent.index(image) + 1, dark_image)


def describe(
    _app: Sphinx,
    _page: str,
    _template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """A page's first sentences are what a search engine shows of it."""
    if doctree is not None:
        paragraphs = doctree.findall(nodes.paragraph)
        texts = (" ".join(paragraph.astext().split()) for paragraph in paragraphs)
        opening = next((text for text in texts if len(text) > 40), "")
        summary = html.escape(textwrap.shorten(opening, 160, placeholder=" ..."))
        context["metatags"] += f'<meta name="description" content="{summary}">'


def let_names_break(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object
) -> None:
    """Let a phone break ``WALSH_ROBOTS_TTL`` after an underscore, and nowhere else."""
    if "body" in context:
        context["body"] = _NAME.sub(
            lambda name: re.sub(r"(?<=[\w-])([_/.])(?=[\w-])", r"\1<wbr>", name[0]), context["body"]
        )


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("source-read", lead_outward)
    app.connect("doctree-read", know_anchors)
    app.connect("doctree-read", show_drawings, priority=100)
    app.connect("doctree-read", show_dark_pictures, priority=100)
    app.connect("doctree-resolved", link_codes)
    app.connect("html-page-context", let_names_break)
    app.connect("html-page-context", describe)
