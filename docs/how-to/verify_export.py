#!/usr/bin/env python3
"""Check a file made by `journal export --format jsonl`; needs Python 3.9 and nothing else.

python3 verify_export.py FILE [POSITION:HASH]    the second is a head somebody wrote down earlier
Exits 0 if the file is what was exported, 1 if it was changed or cut, 2 if it is no such file.
"""

import hashlib
import json
import sys

HEADER = ("position", "task", "version", "generation", "epoch", "kind", "schema", "step", "attempt", "key", "actor", "at")


def main(path: str, written_down: str = "") -> int:
    with open(path, encoding="utf-8") as file:
        first = json.loads(next(file, "null"))
        if not isinstance(first, dict) or first.get("format") != "transition-journal-export":
            print("this is no export of a transition journal")
            return 2
        whole, before, count, seen = first["task"] is None, None, 0, {}
        for number, line in enumerate(file, 2):
            event = json.loads(line)
            wrong = check(event, before, whole)
            if not whole and (event["task"], event["version"]) != (first["task"], count + 1):
                wrong = wrong or "not the task's next version"
            if wrong:
                print(f"line {number}, position {event.get('position')}: {wrong}")
                return 1
            before, count, seen[event["position"]] = event, count + 1, event["hash"]
    head = (first["head"]["position"], first["head"]["hash"])
    if count != first["events"] or (whole and count and (before["position"], before["hash"]) != head):
        print(f"cut: {count} of {first['events']} events")
        return 1
    position, _, digest = written_down.partition(":")
    if written_down and seen.get(int(position)) != digest.lower():
        print(f"position {position} does not have the hash that was written down")
        return 1
    print(f"verified: {count} events, head {head[0]}:{head[1]}")
    return 0


def check(event: dict, before: dict, whole: bool) -> str:
    body = hashlib.sha256(event["body"].encode()).digest()
    header = "\n".join(str(event[name]) for name in HEADER).encode()
    own = hashlib.sha256(bytes.fromhex(event["prev_hash"]) + body + header).hexdigest()
    if body.hex() != event["body_hash"] or own != event["hash"]:
        return "changed: the hash does not fit"
    place = before["position"] if before else 0
    if event["position"] <= place or (whole and event["position"] != place + 1):
        return "out of order, or events are missing before it"
    if event["position"] == place + 1 and event["prev_hash"] != (before["hash"] if before else "0" * 64):
        return "does not follow the event before it"
    return ""


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:3]) if len(sys.argv) > 1 else print(__doc__) or 2)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"changed or cut, a line cannot be read: {error!r}")
