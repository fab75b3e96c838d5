"""What a person sees, in the browser a person uses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from journal.journal import NewTask
from tests.browser.conftest import Site, serving
from tests.browser.scenes import HOSTILE
from tests.contract.http_service import HEAD, OPERATOR, RealService, a_service

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

CHECKS = (Path(__file__).parent / "checks.js").read_text("utf-8")


async def check(page: Page, name: str) -> list[Any]:
    """Run one of the checks of checks.js in the page; what it finds wrong."""
    found: list[Any] = json.loads(await page.evaluate(f"() => {{ {CHECKS}; return JSON.stringify({name}()); }}"))
    return found


async def live(page: Page) -> None:
    await page.locator("#live", has_text="live").wait_for()


# -- with scripts off -------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-6", "R101")
async def test_without_scripts_the_board_says_first_what_needs_a_person_and_why(browser: Browser, site: Site) -> None:
    page = await browser.new_page(java_script_enabled=False)
    await page.goto(site.address)
    headings = await page.locator("h2").all_inner_texts()
    assert [h.split()[0] for h in headings] == ["Needs", "Owners", "Stages"]
    alerts = page.locator(".alert")
    assert await alerts.locator("a.id").all_inner_texts() == ["ORCH-109", "ORCH-110"]
    assert "attempt 1 of merge_pr is in doubt" in await alerts.nth(0).inner_text()
    assert "Its lock is free" in await alerts.nth(1).inner_text()
    columns = await page.locator(".column h3").all_inner_texts()
    assert [" ".join(c.split()) for c in columns] == ["review 15", "deploy 4", "ended 5"]
    assert HOSTILE in await page.locator(".card", has_text="ORCH-102").inner_text()


@pytest.mark.proves("FR-6", "R104")
async def test_without_scripts_a_verb_is_a_form_that_names_its_effect_and_wants_the_token(
    browser: Browser, site: Site
) -> None:
    page = await browser.new_page(java_script_enabled=False)
    await page.goto(f"{site.address}/task/ORCH-114")
    await page.locator("#verb-pause summary").click()
    form = page.locator("#verb-pause form")
    assert "Nobody drives ORCH-114 until it is resumed" in await form.inner_text()
    await form.locator("[name=reason]").fill("release <freeze> & more")
    await form.locator("[name=token]").fill("wrong")
    await form.locator("button").click()
    assert "nothing was recorded" in await page.locator("[role=alert]").inner_text()
    stream = await site.service.reader.read("ORCH-114")
    assert stream.version == 1
    await page.goto(f"{site.address}/task/ORCH-114")
    await page.locator("#verb-pause summary").click()
    await form.locator("[name=reason]").fill("release <freeze> & more")
    await form.locator("[name=token]").fill(OPERATOR)
    await form.locator("button").click()
    assert "Recorded: pause" in await page.locator(".said").inner_text()
    assert "paused" in await page.locator(".title").inner_text()
    event = (await site.service.reader.events(task="ORCH-114"))[-1]
    assert (event.kind.value, event.draft.actor) == ("paused", "operator")
    assert json.loads(event.body_text) == {"reason": "release <freeze> & more"}


async def test_a_parked_task_is_settled_with_what_a_person_found(browser: Browser, site: Site) -> None:
    page = await browser.new_page()
    await page.goto(f"{site.address}/task/ORCH-109#verb-settle")
    form = page.locator("#verb-settle form")
    await form.locator("[value=not-applied]").check()
    await form.locator("[name=evidence]").fill("main does not hold it")
    await form.locator("[name=reason]").fill("looked at the forge")
    await form.locator("[name=token]").fill(OPERATOR)
    await form.locator("button").click()
    await page.locator(".said").wait_for()
    event = (await site.service.reader.events(task="ORCH-109"))[-1]
    assert json.loads(event.body_text) == {
        "applied": False, "evidence": "main does not hold it", "reason": "looked at the forge"
    }  # fmt: skip


@pytest.mark.proves("FR-6", "A3")
async def test_without_scripts_a_person_looks_back_and_walks_to_the_present(browser: Browser, site: Site) -> None:
    page = await browser.new_page(java_script_enabled=False)
    await page.goto(site.address)
    await page.locator("#at").fill("85")
    await page.keyboard.press("Enter")
    await page.locator("h1", has_text="The board as it was").wait_for()
    await page.get_by_role("link", name="An event later").click()
    await page.get_by_text("At position 86,").wait_for()
    await page.get_by_role("region", name="Tasks by stage").get_by_role("link", name="ORCH-109").click()
    for status in ("owned", "owned", "owned", "parked"):  # acquired, intended, observed, parked
        assert status in await page.locator(".title").inner_text()
        assert await page.locator("form[method=post]").count() == 0
        if status != "parked":
            await page.get_by_role("link", name="Its next event").click()
            await page.get_by_text("As of position").wait_for()
    await page.get_by_role("link", name="Back to now").first.click()
    assert await page.locator("#verb-settle").count() == 1


# -- with scripts on --------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-6")
async def test_news_arrive_by_themselves_and_only_what_changed_is_replaced(page: Page, site: Site) -> None:
    await page.goto(site.address)
    await live(page)
    await page.evaluate("document.querySelector('[data-part=stage-deploy]').kept = true")
    assert site.service.journal is not None
    await site.service.journal.open_task(NewTask("ORCH-999", "acme/widgets", "feature/new", head=HEAD), actor="tracker")
    await page.locator("#t-ORCH-999").wait_for()
    assert await page.locator("[data-part=stage-review] .count").inner_text() == "16"
    assert await page.evaluate("document.querySelector('[data-part=stage-deploy]').kept") is True
    assert not await page.evaluate("document.querySelector('[data-part=stage-review]').kept")


async def test_what_somebody_is_writing_is_not_taken_away_by_news(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/task/ORCH-114#verb-pause")
    await live(page)
    await page.locator("#verb-pause [name=reason]").fill("half a sen")
    assert site.service.journal is not None
    await site.service.journal.pause("ORCH-114", reason="somebody else was quicker", actor="operator")
    await page.locator(".title .b-paused").wait_for()
    assert await page.locator("#verb-pause [name=reason]").input_value() == "half a sen"


async def test_the_token_is_asked_for_once_a_session_and_forgotten_when_told(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/task/ORCH-114#verb-pause")
    await page.locator("#verb-pause [name=reason]").fill("freeze")
    await page.locator("#verb-pause [name=token]").fill(OPERATOR)
    await page.locator("#verb-pause button").click()
    await page.locator(".said").wait_for()
    await page.goto(f"{site.address}/task/ORCH-114#verb-resume")
    assert not await page.locator("#verb-resume [name=token]").is_visible()
    await page.locator("#verb-resume [name=reason]").fill("over")
    await page.locator("#verb-resume button").click()
    await page.locator(".said", has_text="resume").wait_for()
    await page.locator("#forget").click()
    assert await page.evaluate("sessionStorage.length") == 0
    assert OPERATOR not in await page.content()


async def test_the_keyboard_is_enough(page: Page, site: Site) -> None:
    await page.goto(site.address)
    focused = "document.activeElement.id"
    await page.keyboard.press("/")
    assert await page.evaluate(focused) == "q"
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    first = await page.evaluate(focused)
    await page.keyboard.press("j")
    second = await page.evaluate(focused)
    await page.keyboard.press("k")
    assert await page.evaluate(focused) == first != second
    await page.keyboard.press("l")
    assert await page.evaluate("document.activeElement.closest('.column').dataset.part") == "stage-deploy"
    task = (await page.evaluate(focused)).removeprefix("t-")
    await page.keyboard.press("Enter")
    await page.locator("h1", has_text=task).wait_for()


async def test_a_search_finds_by_id_branch_and_head_and_runs_nothing(page: Page, site: Site) -> None:
    for text, expected in (("orch-10", 9), ("change-20", 1), (HEAD[:12], 24), ("<script>", 1), ("%", 0), ("_", 0)):
        await page.goto(site.address)
        await page.locator("#q").fill(text)
        await page.keyboard.press("Enter")
        await page.locator("h1", has_text="found for").wait_for()
        assert await page.locator(".card").count() == expected, text


# -- for everybody ----------------------------------------------------------------------------------------------------


PATHS = (
    "/", "/task/ORCH-109", "/task/ORCH-101", "/task/NOBODY", "/?q=nothing", "/?at=90", "/task/ORCH-109?at=88",
    "/changes?from=30",
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_has_contrast_names_are_there_and_nothing_sticks_out(
    browser: Browser, site: Site, scheme: Any
) -> None:
    """WCAG 2.2 AA: 4.5 to 1, 3 to 1 for large text; names, one h1, landmarks, unique ids; 360 px to 4k."""
    page = await browser.new_page(color_scheme=scheme)
    for path in PATHS:
        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.goto(site.address + path)
        await page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        for name in ("contrast", "picture", "names", "structure"):
            assert await check(page, name) == [], path
        for width in (360, 768, 1600, 3840):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await check(page, "sideways") == [], (path, width)
    await page.close()


COUNT_REPLACED = """
    window.replaced = [];
    new MutationObserver((all) => {
      for (const m of all) for (const n of m.addedNodes) if (n.dataset?.part) window.replaced.push(n.dataset.part);
    }).observe(document.body, { childList: true, subtree: true });
"""


async def test_a_thousand_open_tasks_are_a_hundred_cards_a_stage_and_a_way_to_the_rest(
    page: Page, empty_site: Site
) -> None:
    journal = empty_site.service.journal
    assert journal is not None
    new = [NewTask(f"T-{number}", "acme/widgets", f"feature/{number}") for number in range(1000)]
    await asyncio.gather(*(journal.open_task(task, actor="tracker") for task in new))
    await page.goto(empty_site.address)
    await live(page)
    assert await page.evaluate("document.querySelectorAll('*').length") < 1500, "what a browser lays out is bounded"
    await page.evaluate(COUNT_REPLACED)
    await journal.pause("T-999", reason="not among those shown", actor="operator")
    await page.locator("[data-part=position]", has_text="1002").wait_for()
    assert set(await page.evaluate("window.replaced")) <= {"position", "tiles"}, "what shows nothing new stays as it is"
    assert await page.locator("[data-part=stage-review] .count").inner_text() == "1,000"
    assert await page.locator(".card").count() == 100
    seen: list[str] = await page.locator(".card a.id").all_text_contents()
    while await page.locator("a.more").count():
        async with page.expect_navigation():
            await page.locator("a.more").click()
        seen += await page.locator(".card a.id").all_text_contents()
    assert sorted(seen) == sorted(f"T-{number}" for number in range(1000))


@pytest.mark.proves("R101")
async def test_where_reading_needs_a_token_the_page_asks_for_it_and_a_cookie_opens_reading_only(
    browser: Browser, tmp_path: Path
) -> None:
    async with a_service(tmp_path) as service, serving(service, reading=True) as site:
        await opened(service)
        page = await browser.new_page()
        await page.goto(site.address)
        assert "A token is needed" in await page.locator("h1").inner_text()
        assert "T-1" not in await page.content()
        await page.locator("#token").fill(OPERATOR)
        await page.locator(".enter button").click()
        await page.locator("#t-T-1").wait_for()
        await live(page)
        cookies = await page.context.cookies()
        assert [(c.get("httpOnly"), c.get("sameSite")) for c in cookies] == [(True, "Strict")]
        assert OPERATOR not in str(cookies)
        said = await page.request.post(f"{site.address}/tasks/T-1/pause", data={"reason": "by cookie"})
        assert said.status == 401
        await page.close()


async def opened(service: RealService) -> None:
    assert service.journal is not None
    await service.journal.open_task(NewTask("T-1", "acme/widgets", "feature/one", head=HEAD), actor="tracker")
