"""
Coverage reports read into counts: coverage.py's JSON, Cobertura XML, lcov (deploy-facts 3).

A report comes from a branch, so it is hostile input: sizes and numbers are bounded, entities and DTDs stay unread,
duplicate keys and numbers that contradict each other are refused. Only the counts are taken, never percentages or
declared totals.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NoReturn
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from integrations.coverage.counts import Counts, Report, Share, share
from journal.errors import InvalidInputError
from journal.names import shown

SIZE_LIMIT = 32 << 20
"""Bytes of a report."""
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_CONDITION = re.compile(r"[0-9.]{1,20}%? \(([0-9]{1,9})/([0-9]{1,9})\)\Z")


def read_report(content: bytes) -> Report:
    """
    Read a report; its first character tells the format, since people name the files as they like.

    Raises:
        InvalidInputError: Too large, malformed, contradictory, or a report about no file at all.
    """
    if len(content) > SIZE_LIMIT:
        _refuse(f"larger than {SIZE_LIMIT} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        _refuse("not UTF-8 text")
    match text.lstrip()[:1]:
        case "{":
            report = _from_json(text)
        case "<":
            report = _from_xml(content)
        case _:
            report = _from_lcov(text)
    if not report:
        # A run that measured nothing must not pass for one that measured well.
        _refuse("it names no file")
    return report


@dataclass(slots=True)
class _Tally:
    """Lines and branches of one file, gathered by place: a file may come in several pieces."""

    lines: dict[str, bool] = field(default_factory=dict)
    branches: dict[str, Share] = field(default_factory=dict)

    def line(self, number: str, hits: str) -> None:
        """Count a line; it is covered when any piece says so."""
        self.lines[number] = _whole(hits) > 0 or self.lines.get(number, False)

    def branch(self, place: str, taken: Share) -> None:
        """Count the ways out of a place; of several pieces the better one counts."""
        known = self.branches.get(place)
        if known is None or taken.above(known):
            self.branches[place] = taken

    def counts(self) -> Counts:
        """The sums."""
        ways = self.branches.values()
        return Counts(
            Share(sum(self.lines.values()), len(self.lines)),
            Share(sum(way.covered for way in ways), sum(way.total for way in ways)),
        )


def _from_json(text: str) -> Report:
    try:
        # Percentages are the only floats in the format, and nobody here reads them.
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=str)
    except (ValueError, RecursionError) as error:
        _refuse(f"not JSON: {shown(str(error))}")
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict):
        _refuse("no 'files' table: not a report of `coverage json`")
    report = {}
    for name, entry in files.items():
        found = entry.get("summary") if isinstance(entry, dict) else None
        if not isinstance(found, dict):
            _refuse(f"no summary for {shown(name)}")
        branches = share(found.get("covered_branches", 0), found.get("num_branches", 0), name)
        report[_file(name)] = Counts(share(found.get("covered_lines"), found.get("num_statements"), name), branches)
    return report


def _from_xml(content: bytes) -> Report:
    try:
        # A DTD is named in many Cobertura files; it is neither fetched nor may it declare anything.
        root: Element = fromstring(content, forbid_entities=True, forbid_external=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        _refuse(f"not XML that is safe to read: {shown(str(error))}")
    if root.tag != "coverage":
        _refuse(f"root element '{shown(root.tag)}' instead of 'coverage'")
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    for piece in root.iter("class"):
        tally = tallies[_file(piece.get("filename", ""))]
        for line in piece.findall("lines/line"):  # those below <methods> say the same again
            number = str(_whole(line.get("number", "")))
            tally.line(number, line.get("hits", ""))
            if line.get("branch") == "true":
                tally.branch(number, _condition(line.get("condition-coverage", ""), number))
    return {name: tally.counts() for name, tally in tallies.items()}


def _condition(text: str, where: str) -> Share:
    found = _CONDITION.match(text)
    if not found:
        _refuse(f"condition-coverage '{shown(text)}'")
    return share(int(found[1]), int(found[2]), f"line {where}")


def _from_lcov(text: str) -> Report:
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    tally: _Tally | None = None
    for row in text.splitlines():
        kind, _, rest = row.strip().partition(":")
        if kind == "SF":
            tally = tallies[_file(rest)]
        elif kind == "end_of_record":
            tally = None
        elif kind in {"DA", "BRDA"}:
            if tally is None:
                _refuse(f"{kind} outside a record")
            _lcov_row(tally, kind, rest.split(","))
        elif kind and not re.fullmatch(r"TN|VER|F[NL][A-Z]{0,3}|[LB]R?[FH]|#.*", kind):
            _refuse(f"unknown line '{shown(row)}': not lcov, Cobertura XML or coverage.py's JSON")
    if tally is not None:
        _refuse("it ends inside a record")
    return {name: tally.counts() for name, tally in tallies.items()}


def _lcov_row(tally: _Tally, kind: str, parts: list[str]) -> None:
    if kind == "DA" and len(parts) in {2, 3}:  # the third is a checksum
        tally.line(str(_whole(parts[0])), parts[1])
    elif kind == "BRDA" and len(parts) >= 4:  # a branch's name may hold commas
        taken = 0 if parts[-1] == "-" else _whole(parts[-1])
        tally.branch(",".join([str(_whole(parts[0])), *parts[1:-1]]), Share(int(taken > 0), 1))
    else:
        _refuse(f"malformed {kind} line '{shown(','.join(parts))}'")


def _whole(text: str) -> int:
    if not _NUMBER.match(text):
        _refuse(f"'{shown(text)}' is no whole number")
    return int(text)


def _file(name: str) -> str:
    if not name or len(name) > 1000 or _HIDDEN.search(name):
        _refuse(f"file name '{shown(name)}'")
    return name.removeprefix("./")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        message = "a key stands twice"
        raise ValueError(message)
    return table


def _no_constant(text: str) -> NoReturn:
    message = f"{text} is no number"
    raise ValueError(message)


def _refuse(why: str) -> NoReturn:
    raise InvalidInputError(what="coverage report", why=why)
