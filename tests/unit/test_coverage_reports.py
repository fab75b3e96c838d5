"""Coverage reports as hostile input, and the arithmetic of the ratchet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.coverage.counts import Counts, Share, holds, raised, share, total
from integrations.coverage.reports import SIZE_LIMIT, read_report
from journal.errors import InvalidInputError

EXPECTED = {"shop/price.py": Counts(Share(3, 4), Share(1, 2)), "shop/__init__.py": Counts(Share(1, 1), Share())}
LCOV = """TN:
SF:shop/price.py
FN:1,4,price
FNDA:2,price
FNF:1
FNH:1
DA:1,1
DA:2,7
DA:3,0
DA:4,1
LF:4
LH:3
BRDA:2,0,jump to line 3,0
BRDA:2,0,jump to line 4,7
BRF:2
BRH:1
end_of_record
SF:./shop/__init__.py
DA:1,1,checksum
LF:1
LH:1
end_of_record
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE coverage SYSTEM "http://localhost:9/coverage-04.dtd">
<coverage version="7" line-rate="0.8" branch-rate="0.5">
 <packages><package name="shop"><classes>
  <class name="price.py" filename="shop/price.py">
   <methods><method name="price"><lines>
    <line number="1" hits="9"/><line number="99" hits="9"/>
   </lines></method></methods>
   <lines>
    <line number="1" hits="1"/>
    <line number="2" hits="7" branch="true" condition-coverage="50% (1/2)" missing-branches="3"/>
    <line number="3" hits="0"/>
   </lines></class>
  <class name="price.py" filename="shop/price.py"><lines>
    <line number="3" hits="0"/><line number="4" hits="1"/>
  </lines></class>
  <class name="__init__.py" filename="shop/__init__.py"><methods/><lines><line number="1" hits="1"/></lines></class>
 </classes></package></packages>
</coverage>
"""


def as_json(**summary: Any) -> bytes:
    counts = {"covered_lines": 3, "num_statements": 4, "covered_branches": 1, "num_branches": 2} | summary
    second = {"summary": {"covered_lines": 1, "num_statements": 1, "percent_covered": 100.0}}
    return json.dumps({"files": {"shop/price.py": {"summary": counts}, "shop/__init__.py": second}}).encode()


@pytest.mark.proves("R97")
@pytest.mark.parametrize("report", [as_json(), XML.encode(), LCOV.encode(), b"\xef\xbb\xbf" + as_json()])
def test_the_three_formats_say_the_same_counts(report: bytes) -> None:
    """Percentages, declared totals, methods, pieces of one file and the DTD make no difference."""
    assert read_report(report) == EXPECTED
    assert total(read_report(report)) == Counts(Share(4, 5), Share(1, 2))


HOSTILE_JSON = {
    "negative": as_json(covered_lines=-1),
    "more covered than there are": as_json(covered_lines=5),
    "a float": as_json(covered_lines=3.0),
    "a truth value": as_json(covered_lines=True),
    "a text": as_json(covered_lines="3"),
    "nothing": as_json(covered_lines=None),
    "not a number": as_json(covered_lines=float("nan")),
    "not a number where nobody looks": as_json(percent_covered=float("nan")),
    "infinite": as_json(num_statements=float("inf")),
    "huge": as_json(covered_lines=10**30, num_statements=10**30),
    "more digits than Python reads": as_json().replace(b": 4,", b": " + b"9" * 5000 + b","),
    "a key twice": as_json().replace(b'"covered_lines": 3', b'"covered_lines": 1, "covered_lines": 3'),
    "a file twice": as_json().replace(b"shop/__init__.py", b"shop/price.py"),
    "deep": b'{"files": ' + b"[" * 100_000,
    "no files": b'{"files": {}}',
    "no table": b'{"totals": {"percent_covered": 100.0}}',
    "not a table": b'{"files": [1]}',
    "no summary": b'{"files": {"a.py": {}}}',
    "a lone surrogate": as_json().replace(b"shop/price.py", b"\\ud800"),
    "a line break in a name": as_json().replace(b"shop/price.py", b"a\\nb"),
    "cut off": as_json()[:-9],
}
HOSTILE_XML = {
    "an entity bomb": b'<!DOCTYPE c [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><coverage>&b;</coverage>',
    "an entity that says the truth": XML.replace('"shop/price.py"', '"&a;"')
    .replace('SYSTEM "http://localhost:9/coverage-04.dtd"', '[<!ENTITY a "shop/price.py">]')
    .encode(),
    "a foreign file": b'<!DOCTYPE c [<!ENTITY a SYSTEM "file:///etc/hostname">]><coverage>&a;</coverage>',
    "another root": b"<testsuite/>",
    "no class": b"<coverage/>",
    "unclosed": XML.encode()[:-20],
    "unknown encoding": b'<?xml version="1.0" encoding="no-such"?><coverage/>',
    "negative hits": XML.replace('hits="7"', 'hits="-7"').encode(),
    "a float": XML.replace('hits="7"', 'hits="0.5"').encode(),
    "huge hits": XML.replace('hits="7"', f'hits="{"9" * 30}"').encode(),
    "more ways taken than there are": XML.replace("(1/2)", "(3/2)").encode(),
    "no condition": XML.replace(' condition-coverage="50% (1/2)"', "").encode(),
    "no file name": XML.replace(' filename="shop/price.py"', "").encode(),
}
HOSTILE_LCOV = {
    "prose": b"100% covered, promised\n",
    "a line outside a record": b"DA:1,1\n",
    "cut off": LCOV.encode()[:60],
    "cut off between two lines": LCOV.removesuffix("end_of_record\n").encode(),
    "a negative count": LCOV.replace("DA:2,7", "DA:2,-7").encode(),
    "too few fields": LCOV.replace("DA:2,7", "DA:2").encode(),
    "an empty file": b"",
    "not text": b"\xff\xfe\x00",
    "no name": b"SF:\nend_of_record\n",
    "arabic digits": LCOV.replace("DA:2,7", "DA:2,\u0667").encode(),
    "too large": b"#" * (SIZE_LIMIT + 1),
}


@pytest.mark.proves("R101", "R100")
@pytest.mark.parametrize(
    "report", [pytest.param(text, id=name) for name, text in (HOSTILE_JSON | HOSTILE_XML | HOSTILE_LCOV).items()]
)
def test_a_hostile_report_is_refused_with_a_reason(report: bytes) -> None:
    with pytest.raises(InvalidInputError, match="coverage"):
        read_report(report)


@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]<>:,"/0123456789SFDABRendofcord_\n', max_size=200).map(str.encode)
)
def test_no_bytes_make_the_reader_fail_in_another_way(report: bytes) -> None:
    try:
        counts = read_report(report)
    except InvalidInputError:
        return
    assert all(0 <= one.lines.covered <= one.lines.total for one in counts.values())


shares = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda pair: Share(min(pair), max(pair)))
reports = st.dictionaries(st.sampled_from("abc"), st.builds(Counts, shares, shares))


@given(reports, reports)
@pytest.mark.proves("R97")
def test_a_raise_moves_only_what_is_higher_and_never_lowers_anything(
    old: dict[str, Counts], new: dict[str, Counts]
) -> None:
    """The oracle: the exact fractions, each number by itself."""
    higher = raised(old, new)
    assert holds(higher, new) and holds(higher, old)
    assert raised(higher, new) == raised(higher, old) == higher  # nothing is left to raise
    for name in old.keys() | new.keys():
        for which in ("lines", "branches"):
            was, ours, now = (getattr(table.get(name, Counts()), which) for table in (old, new, higher))
            assert now in {was, ours}
            assert not now.below(was) and not now.below(ours)
    assert holds(old, new) == (higher == {**{name: Counts() for name in new}, **old})


def test_shares_are_compared_exactly() -> None:
    assert Share(2, 3).above(Share(666_666_666, 10**9)) and not Share(1, 2).above(Share(2, 4))
    assert Share(9, 10).below(Share(10, 10)) and not Share(9, 10).below(Share(10, 10), tolerance=1)
    assert Share(0, 5).above(Share()) and not Share().below(Share(5, 5))
    with pytest.raises(InvalidInputError):
        share(2, 1, "x")
