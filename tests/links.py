"""
The documentation holds together: every relative link and anchor resolves, every page is reachable (decision 0004).

`python -m tests.links` prints what does not and exits 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = "docs/index.md"
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links(text: str) -> Iterator[str]:
    """Yield the targets of a page's links that point into this repository; code is no link."""
    prose = _CODE.sub("", _FENCE.sub("", text))
    yield from (target for target in _LINK.findall(prose) if not _ELSEWHERE.match(target))


def anchors(text: str) -> set[str]:
    """Name the anchors of a page's headings as forges do: lower case, blanks to hyphens, punctuation dropped."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def faults(root: Path, start: str = START) -> list[str]:
    """Name each broken link as `page: target: why`, and each page below docs/ that no link leads to."""
    found: list[str] = []
    leads_to: dict[Path, set[Path]] = {}
    pages = sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])
    for page in pages:
        text = page.read_text()
        targets = leads_to.setdefault(page, set())
        for link in links(text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_relative_to(root) or not target.exists():
                found.append(f"{page.relative_to(root)}: {link}: no such file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                found.append(f"{page.relative_to(root)}: {link}: no such heading")
            targets.add(target)
    reached, todo = set[Path](), [root / start]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            todo += leads_to.get(page, ())
    found += [
        f"{page.relative_to(root)}: no link from {start} leads here"
        for page in pages
        if page.is_relative_to(root / "docs") and page not in reached
    ]
    return found


def main() -> int:
    """Print the faults; exit 1 if there are any."""
    found = faults(ROOT)
    for fault in found:
        print(fault)
    print(f"docs: {len(found)} faults" if found else "docs: every link resolves and every page is reachable")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
