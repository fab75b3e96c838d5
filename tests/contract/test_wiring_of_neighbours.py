"""What the composition root makes of settings about neighbours: adapters by name, sides, and refusals with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from integrations.image.step import ImageStep
from integrations.plane.hooks import PlaneHooks
from integrations.plane.poll import PlaneItems
from integrations.plane.publish import PlanePublisher
from integrations.settings import Environment, load
from integrations.wiring import build, sinks
from journal.errors import InvalidInputError
from tests.widgets import build_widgets, run_git

STEPS = """
[pipeline]
stages = ["review", "deploy", "done"]
on_new_head = ""
[[pipeline.edges]]
from = "review"
to = "deploy"
steps = ["merge_pr", "rebuild"]
gates = [{gates}]
[[pipeline.edges]]
from = "deploy"
to = "done"
steps = ["deploy_init", "deploy_verified"]
[steps.merge_pr]
use = "git-merge"
[steps.rebuild]
use = "image"
[steps.deploy_init]
use = "{how}-deploy"
command = ["deploy", "{{target}}"]
{image}
[steps.deploy_verified]
use = "{how}-verified"
[gates]
{gate}
[integrations.git.repositories]
"""
PLANE = """
[integrations.plane]
url = "https://plane.example"
workspace = "acme"
project = "p-1"
"""
GATE = 'confirmed = { use = "plane-state", states = ["Confirm Deploy"] }'


def written(folder: Path, more: str = "", how: str = "container", gate: str = "") -> Path:
    file = folder / "journal.toml"
    image = 'image = "acme/deployer:1"' if how == "container" else ""
    gates = '"confirmed"' if gate else ""
    file.write_text(STEPS.format(how=how, image=image, gate=gate, gates=gates) + more)
    return file


@pytest.mark.parametrize("how", ["container", "unit"])
def test_a_pipeline_may_name_images_and_helpers(tmp_path: Path, how: str) -> None:
    parts = build(load(written(tmp_path, how=how), environment=Environment()))
    assert isinstance(parts.steps["rebuild"], ImageStep)
    assert parts.pipeline.steps["deploy_init"].lane == "deploy:production"
    assert parts.pipeline.steps["deploy_init"].plan.ends_owner
    assert (parts.tracker, parts.hooks, parts.outsides) == (None, {}, {})


@pytest.mark.proves("R72")
def test_a_tracker_is_asked_and_shown_and_heard_only_with_its_secret(tmp_path: Path) -> None:
    file = written(tmp_path, PLANE, gate=GATE)
    deaf = build(load(file, environment=Environment()))
    assert isinstance(deaf.tracker, PlaneItems) and not deaf.hooks
    assert isinstance(deaf.outsides["plane"], PlanePublisher)
    heard = build(load(file, environment=Environment(plane_webhook_secret="made-up")))
    assert isinstance(heard.hooks["plane"], PlaneHooks)


def test_a_gate_without_its_tracker_is_refused_with_the_key_to_set(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"integrations\.plane\.url"):
        build(load(written(tmp_path, gate=GATE), environment=Environment()))


def test_secrets_come_from_files_too_and_are_all_known_to_the_scrubber(tmp_path: Path) -> None:
    names = ("plane_token", "plane_webhook_secret", "telegram_token")
    for name in names:
        (tmp_path / name).write_text(f"from-a-file-{name}\n")
    environment = Environment.model_validate({f"{name}_file": tmp_path / name for name in names})
    settings = load(written(tmp_path, PLANE), environment=environment)
    assert settings.plane_token == "from-a-file-plane_token"
    assert {f"from-a-file-{name}" for name in names} <= set(settings.secrets)


def test_alerts_and_lessons_are_made_when_they_are_configured(tmp_path: Path) -> None:
    alerts = '[integrations.alerts]\ntelegram_chat = "@ops"\nlessons_db = "host.db"\n'
    file = written(tmp_path, alerts)
    assert set(sinks(load(file, environment=Environment(telegram_token="1:a")))) == {"alerts", "lessons"}
    with pytest.raises(InvalidInputError, match="ORCH_TELEGRAM_TOKEN"):
        sinks(load(file, environment=Environment()))
    assert sinks(load(written(tmp_path), environment=Environment())) == {}


@pytest.mark.proves("R67")
async def test_clones_of_the_forge_order_commits_as_well_as_configured_repositories(tmp_path: Path) -> None:
    """Without an answer every deploy of a forge-only installation would wait for ever."""
    widgets = build_widgets(tmp_path)
    old, new = widgets.main(), widgets.edit("README.md", "more")
    (tmp_path / "clones" / "acme").mkdir(parents=True)
    clone = tmp_path / "clones" / "acme" / "widgets.git"
    run_git(None, "clone", "--quiet", "--bare", str(widgets.scenery.repository), str(clone))
    forge = f'[integrations.gitea]\nurl = "https://forge.example"\nclones = "{tmp_path / "clones"}"\n'
    parts = build(load(written(tmp_path, forge), environment=Environment()), running=new)
    step = parts.steps["deploy_init"]
    assert await step._is_ancestor(old, new) is True  # type: ignore[attr-defined]
    assert await step._is_ancestor(new, old) is False  # type: ignore[attr-defined]
    assert await step._is_ancestor(old, "f" * 40) is None  # type: ignore[attr-defined]
