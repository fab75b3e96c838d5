"""The forge in `journal.toml` and in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from integrations.gitea.gates import GiteaApprovedGate, GiteaChecksGate
from integrations.gitea.merge import GiteaMerge
from integrations.hooks import Forges
from integrations.settings import Environment, load
from integrations.wiring import Parts, build
from journal.errors import InvalidInputError
from journal.words import Guard

TOML = """
[pipeline]
stages = ["review", "done"]
[[pipeline.edges]]
from = "review"
to = "done"
steps = ["merge_pr", "merge_verified", "delete_branch"]
gates = ["checks", "approved"]
[steps.merge_pr]
use = "gitea-merge"
style = "{style}"
[steps.merge_verified]
use = "gitea-merge-verified"
budget_s = 0
[steps.delete_branch]
use = "gitea-delete-branch"
[gates.checks]
use = "gitea-checks"
[gates.approved]
use = "gitea-approved"
"""


def built(folder: Path, *, url: str = "https://forge.test/sub/", style: str = "squash", **environment: str) -> Parts:
    file = folder / "journal.toml"
    file.write_text(TOML.replace("{style}", style) + (f'[integrations.gitea]\nurl = "{url}"\n' if url else ""))
    return build(load(file, environment=Environment.model_validate(environment)))


@pytest.mark.proves("E4", "E13")
def test_the_forge_s_steps_and_gates_are_made_from_the_file(tmp_path: Path) -> None:
    parts = built(tmp_path)
    assert isinstance(parts.steps["merge_pr"], GiteaMerge) and isinstance(parts.forge, Forges)
    assert isinstance(parts.gates["checks"], GiteaChecksGate) and isinstance(parts.gates["approved"], GiteaApprovedGate)
    merge = parts.pipeline.steps["merge_pr"]
    assert merge.plan.guard is Guard.EXCLUSIVE and merge.plan.irreversible and merge.plan.adopts
    assert merge.lane == "merge:{repo}/{base}" and set(parts.outsides) == {"gitea"}


@pytest.mark.proves("R72")
def test_webhooks_are_taken_only_with_a_secret(tmp_path: Path) -> None:
    assert "gitea" not in built(tmp_path).hooks
    (tmp_path / "secret").write_text("from a file\n")
    for more in ({"gitea_webhook_secret": "x"}, {"gitea_webhook_secret_file": str(tmp_path / "secret")}):
        assert "gitea" in built(tmp_path, **more).hooks


@pytest.mark.proves("L6")
def test_secrets_are_known_as_such_and_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token-in-a-file\n")
    (tmp_path / "journal.toml").write_text("")
    environment = Environment.model_validate(
        {"gitea_token_file": str(tmp_path / "token"), "gitea_webhook_secret": "hook-secret"}
    )
    settings = load(tmp_path / "journal.toml", environment=environment)
    assert {"token-in-a-file", "hook-secret"} <= set(settings.secrets)
    assert "hook-secret" not in repr(settings)
    missing = Environment.model_validate({"gitea_token_file": str(tmp_path / "nowhere")})
    with pytest.raises(InvalidInputError, match="ORCH_GITEA_TOKEN_FILE"):
        _ = load(tmp_path / "journal.toml", environment=missing).gitea_token


@pytest.mark.proves("R19", "R18")
@pytest.mark.parametrize("style", ["rebase", "rebase-merge", "fast-forward-only", "manually-merged", ""])
def test_a_style_whose_message_cannot_carry_our_mark_is_refused(tmp_path: Path, style: str) -> None:
    with pytest.raises(InvalidInputError, match=r"steps\.merge_pr"):
        built(tmp_path, style=style)


@pytest.mark.parametrize("url", ["", "ftp://forge.test", "https://me:secret@forge.test", "forge.test", "https://a b"])
def test_an_address_that_cannot_be_one_is_refused_at_load(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"integrations\.gitea"):
        built(tmp_path, url=url)
