"""Makes the pictures of these pages, in ``docs/pictures/``.

``python docs/pictures.py report``: of the report of a real crawl, that of ``walsh demo``.
``python docs/pictures.py drawings --mermaid mermaid.min.js``: of each block of Mermaid; the library
is in the npm package ``mermaid``. A drawing carries the digest of its text, so that ``make docs``
sees which one is out of date.

Both need a Chromium. Exit code 1 where it made no picture.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import re
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
#: Name, what of the report's page is left out (as CSS selects it), and the size in pixels.
SHOTS = (
    ("report", "none", "1120,765"),
    ("report-hosts", "header, section:not(#hosts), #hosts .scroll, #hosts .caption", "1120,790"),
)
#: How the name of a picture ends, and what tells Chromium which colours are preferred.
SCHEMES = (
    ("", "--blink-settings=preferredColorScheme=1"),
    ("-dark", "--blink-settings=preferredColorScheme=0"),
)
#: The code host scales a picture down, PyPI too; neither likes one that is long to load.
MOST_OCTETS = 300_000
MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PAGE = """<!doctype html><meta charset="utf-8"><body><pre class="mermaid">{text}</pre>
<script src="{library}"></script><script>
mermaid.initialize({{startOnLoad: false, htmlLabels: false, theme: "default",
  fontFamily: "sans-serif", fontSize: 18,
  flowchart: {{htmlLabels: false, nodeSpacing: 14, rankSpacing: 32, wrappingWidth: 340,
    padding: 6}},
  sequence: {{actorMargin: 10, width: 110, messageFontSize: 15, actorFontSize: 15}}}});
mermaid.run();
</script>"""


def chromium(program: str, *words: str) -> str:
    """Run Chromium without a window; what it prints. CalledProcessError where it fails."""
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    done = subprocess.run(
        [program, *fixed, *words], check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout


def report(program: str) -> None:
    """Two pictures of the report of a crawl of the sandbox, in both schemes."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo"
        command = [sys.executable, "-m", "scrapy_walsh", "demo", "--dir", str(demo)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        text = (demo / "report.html").read_text()
        part = demo / "part.html"
        for (name, left_out, size), (ending, scheme) in product(SHOTS, SCHEMES):
            target = PICTURES / f"{name}{ending}.png"
            part.write_text(f"{text}<style>{left_out} {{ display: none }}</style>")
            words = (scheme, f"--window-size={size}", f"--screenshot={target}")
            chromium(program, *words, part.as_uri())
            octets = target.stat().st_size
            if octets > MOST_OCTETS:
                sys.exit(f"{target} has {octets} octets; make it smaller")
            print(f"{target}: {octets} octets")


def drawings(program: str, library: Path) -> None:
    """An SVG for each block of Mermaid, with the digest of the block's text."""
    for page in sorted(DOCS.glob("*.md")):
        for number, text in enumerate(MERMAID.findall(page.read_text()), start=1):
            target = PICTURES / f"{page.stem}-{number}.svg"
            target.write_text(drawn(program, library, text.strip()))
            print(target)


def drawn(program: str, library: Path, text: str) -> str:
    """The SVG of one block."""
    with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
        file.write(_PAGE.format(text=html.escape(text), library=library.absolute().as_uri()))
        file.flush()
        words = ("--virtual-time-budget=20000", "--dump-dom", Path(file.name).as_uri())
        found = re.search(r"<svg.*?</svg>", chromium(program, *words), re.DOTALL)
    if found is None or "Syntax error" in found[0]:
        sys.exit(f"no drawing was made of: {text.splitlines()[0]}")
    svg = found[0].replace("<br>", "<br/>")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"<!-- {digest} -->\n{svg}\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("report", "drawings"))
    parser.add_argument("--chromium", default="chromium", metavar="PROGRAM")
    parser.add_argument("--mermaid", type=Path, metavar="FILE", help="mermaid.min.js")
    args = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    if args.what == "report":
        report(args.chromium)
    elif args.mermaid is None:
        parser.error("drawings needs --mermaid")
    else:
        drawings(args.chromium, args.mermaid)


if __name__ == "__main__":
    main()
