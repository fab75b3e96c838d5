"""
The demo's build command: a content-addressed artefact per commit, made by `git archive`.

    python -m integrations.demo.build REPOSITORY FOLDER COMMIT           build; exit 0
    python -m integrations.demo.build --probe REPOSITORY FOLDER COMMIT   exit 0 and print the digest, or exit 10

Only the standard library, so that it starts fast; a file appears under its name whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ABSENT = 10


def main(argv: list[str]) -> int:
    """Build or look."""
    probing = argv[:1] == ["--probe"]
    repository, folder, commit = argv[1:] if probing else argv
    artefact = Path(folder) / f"{commit}.tar"
    if probing:
        if not artefact.exists():
            return ABSENT
        print(json.dumps({"digest": f"sha256:{hashlib.sha256(artefact.read_bytes()).hexdigest()}"}))  # noqa: T201
        return 0
    return _build(Path(repository), artefact, commit)


def _build(repository: Path, artefact: Path, commit: str) -> int:
    artefact.parent.mkdir(parents=True, exist_ok=True)
    part = artefact.with_suffix(f".{os.getpid()}.part")
    argv = ["git", f"--git-dir={repository}", "archive", "--format=tar", f"--output={part}", commit]
    code = subprocess.run(argv, check=False).returncode
    if code == 0:
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(artefact)
    else:
        part.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
