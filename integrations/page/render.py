"""Templates and static files: loaded once, everything escaped, addressed by their contents so that nothing is stale."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from integrations.page import timeline, words
from journal.words import Kind
from projections.history import gist

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent

MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

KINDS = " ".join(kind.value for kind in Kind)
"""What the live feed may call an event."""


@dataclass(frozen=True, slots=True)
class Static:
    """A file of the page."""

    body: bytes
    media_type: str
    mark: str  # of its contents


@cache
def statics() -> Mapping[str, Static]:
    """Every static file by name; nothing else can be asked for."""
    files = {path.name: path for path in sorted((HERE / "static").iterdir()) if path.suffix in MEDIA_TYPES}
    read = {name: path.read_bytes() for name, path in files.items()}
    return MappingProxyType(
        {
            name: Static(body, MEDIA_TYPES[files[name].suffix], hashlib.sha256(body).hexdigest()[:12])
            for name, body in read.items()
        }
    )


def address(name: str) -> str:
    """Where a static file is served; another content has another address."""
    return f"/static/{name}?v={statics()[name].mark}"


@cache
def environment() -> Environment:
    """The templates; a name that is not given is an error and no empty text. Loaded for the first page, not before."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "moment": words.moment,
        "machine": words.machine,
        "lasted": words.lasted,
        "aged": words.aged,
        "visible": words.visible,
        "gist": gist,
    }
    made.globals |= {"static": address, "kinds": KINDS, "top": timeline.TOP}
    return made


def render(template: str, **given: Any) -> str:
    """A whole document."""
    return environment().get_template(template).render(**given)
