"""
A stand-in for the docker client where no engine can run: exit codes, words and state as seen with the real one.

    python docker.py FOLDER ARGUMENT...     state lies in FOLDER; a file FOLDER/down makes the daemon unreachable
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

_BUILD = "label iidfile file"
_RUN = "pull restart name network env volume"
_ASK = "format last filter tail"
VALUED = {f"--{name}" for name in f"{_BUILD} {_RUN} {_ASK}".split()}


def fail(code: int, said: str) -> NoReturn:
    print(said, file=sys.stderr)
    sys.exit(code)


def parse(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options until the first argument that is none, then the rest."""
    options: dict[str, list[str]] = {}
    while argv and argv[0].startswith("-"):
        name = argv.pop(0)
        options.setdefault(name, []).append(argv.pop(0) if name in VALUED else "")
    return options, argv


@contextmanager
def state(folder: Path) -> Iterator[dict[str, Any]]:
    """The whole state, under a lock, written back atomically."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = folder / "state.json"
        value = (
            json.loads(file.read_text()) if file.exists() else {"images": {}, "tags": {}, "containers": {}, "made": 0}
        )
        yield value
        part = folder / "state.part"
        part.write_text(json.dumps(value))
        part.replace(file)


def tagged(reference: str) -> str:
    return (
        reference if reference.startswith("sha256:") or ":" in reference.rpartition("/")[2] else f"{reference}:latest"
    )


def image(folder: Path, verb: str, argv: list[str]) -> None:
    options, rest = parse(argv)
    with state(folder) as s:
        found = s["tags"].get(tagged(rest[0]), rest[0])
        if found not in s["images"]:
            fail(1, f"Error response from daemon: No such image: {tagged(rest[0])}")
        if verb == "inspect":
            print(json.dumps(s["images"][found]) if "--format" in options else json.dumps([s["images"][found]]))
        elif verb == "tag":
            s["tags"][tagged(rest[1])] = found
        elif verb == "rm":
            s["tags"].pop(tagged(rest[0]), None)


def build(folder: Path, argv: list[str]) -> None:
    options, rest = parse(argv)
    recipe = Path(options["--file"][0])
    if not recipe.is_file():
        fail(1, f"unable to prepare context: unable to evaluate symlinks in Dockerfile path: {recipe}: no such file")
    if "RUN false" in recipe.read_text():
        fail(1, "The command '/bin/false' returned a non-zero code: 1")
    with state(folder) as s:
        s["made"] += 1
        content = b"".join(p.read_bytes() for p in sorted(Path(rest[0]).rglob("*")) if p.is_file())
        made = "sha256:" + hashlib.sha256(content + str(s["made"]).encode()).hexdigest()  # never reproducible
        labels = dict(label.split("=", 1) for label in options.get("--label", []))
        s["images"][made] = {"Id": made, "Config": {"Labels": labels}}
    Path(options["--iidfile"][0]).write_text(made)


def run(folder: Path, argv: list[str]) -> None:
    options, rest = parse(argv)
    name, reference = options["--name"][0], rest[0]
    with state(folder) as s:
        if s["tags"].get(tagged(reference), reference) not in s["images"]:
            fail(125, f"docker: Error response from daemon: No such image: {tagged(reference)}")
        if name in s["containers"]:
            fail(125, f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use')
        labels = dict(label.split("=", 1) for label in options.get("--label", []))
        status = {"Status": "running", "ExitCode": 0, "Error": ""}
        s["containers"][name] = {"State": status, "Config": {"Labels": labels}, "made": len(s["containers"])}
    print(hashlib.sha256(name.encode()).hexdigest(), flush=True)
    if os.fork():
        return
    os.setsid()
    environment = dict(os.environ, **dict(e.split("=", 1) for e in options.get("--env", []) if "=" in e))
    for fd in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.closerange(3, 256)
    done = subprocess.run(rest[1:], capture_output=True, env=environment, check=False)
    (folder / f"{name}.log").write_bytes(done.stdout + done.stderr)
    with state(folder) as s:
        s["containers"][name]["State"] = {"Status": "exited", "ExitCode": done.returncode, "Error": ""}
    os._exit(0)


def container(folder: Path, verb: str, argv: list[str]) -> None:
    options, rest = parse(argv)
    with state(folder) as s:
        containers = s["containers"]
    if verb == "ls":
        wanted = [f.removeprefix("label=").split("=", 1) for f in options.get("--filter", [])]
        newest = sorted(containers, key=lambda n: -containers[n]["made"])
        for name in newest:
            if all(containers[name]["Config"]["Labels"].get(k) == v for k, v in wanted):
                print(name)
        return
    if rest[0] not in containers:
        fail(1, f"Error response from daemon: No such container: {rest[0]}")
    if verb == "inspect":
        print(json.dumps(containers[rest[0]]))
    elif verb == "logs" and (folder / f"{rest[0]}.log").exists():
        sys.stdout.write((folder / f"{rest[0]}.log").read_text())


def main(folder: Path, argv: list[str]) -> None:
    if (folder / "down").exists():
        fail(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
    match argv:
        case ["image", verb, *rest]:
            image(folder, verb, rest)
        case ["container", verb, *rest]:
            container(folder, verb, rest)
        case ["build", *rest]:
            build(folder, rest)
        case ["run", *rest]:
            run(folder, rest)
        case _:
            fail(125, f"this stand-in knows no {argv[:2]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
