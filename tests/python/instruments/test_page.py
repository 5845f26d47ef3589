"""The page of a report in a browser: it opens fast, has the report's numbers, and is for everyone.

These tests need a browser (Debian's package ``chromium``) and playwright; `make page-test` installs both and runs them.
"""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import aten_recompute
from aten_recompute._texts import byte_text
from benchmarks.models import make
from instruments.test_report import TwoMethods, trained_workload
from support.helpers import lowered_copy

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: run `make page-test`")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed: run `make page-test`")

WIDTHS = (1280, 768, 390)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report() -> Any:
    return aten_recompute.report(trained_workload(steps=3))


@pytest.fixture(scope="module")
def path(report: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    report.to_html(path)
    return path


def opened(browser: Any, path: Path, width: int = 1280, **options: Any) -> Any:
    """Returns the page, whose errors and requests fail the test that closes it."""
    page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.url == path.as_uri() else page.problems.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=20_000)
    return page


@pytest.fixture
def page(browser: Any, path: Path) -> Iterator[Any]:
    page = opened(browser, path)
    yield page
    assert page.problems == []
    page.context.close()


def cards(page: Any) -> dict[str, str]:
    names, values = page.locator("#cards dt").all_text_contents(), page.locator("#cards dd").all_text_contents()
    return dict(zip(names, values, strict=True))


def test_its_numbers_are_those_of_the_report(page: Any, report: Any) -> None:
    (chart,) = report.charts()
    (variant,) = report["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    shown = cards(page)
    assert shown["Predicted peak"] == byte_text(variant["predicted_peak_bytes"])
    assert shown["With nothing recomputed"] == byte_text(variant["unplanned_peak_bytes"])
    assert shown["Kept for the backward"] == byte_text(variant["predicted_saved_bytes"])
    assert shown["Budget"] == byte_text(chart.budget_bytes)
    assert chart.title in page.locator("h1").text_content()
    assert variant["peak_operator"]["name"] in page.locator("#report").text_content()


def test_the_peak_says_what_is_alive_there(page: Any, report: Any) -> None:
    (chart,) = report.charts()
    page.locator("#to-peak").click()
    detail = page.locator("#memory-detail")
    moment = chart.planned.moments[chart.planned.peak_moment]
    assert moment.name in detail.locator(".head").text_content()
    assert byte_text(chart.planned.peak_bytes) in detail.locator(".head").text_content()
    rows = [row.locator("td").all_text_contents() for row in detail.locator("tbody tr").all()]
    largest = chart.planned.alive_at(chart.planned.peak_moment)[: len(rows)]
    assert [(row[1], row[2], row[3]) for row in rows] == [
        (byte_text(block.bytes), block.kind, block.layer) for block in sorted(largest, key=lambda each: -each.bytes)
    ]
    assert all(re.search(r"\.py:\d+$", row[4]) for row in rows if row[3])


def area(page: Any, name: str) -> dict[str, float]:
    """Returns where the area of a chart is on the screen, after scrolling to it."""
    over = page.locator(f"#{name}-plot .u-over")
    over.scroll_into_view_if_needed()
    box: dict[str, float] = over.bounding_box()
    return box


def test_the_mouse_shows_the_operator_below_it(page: Any) -> None:
    box = area(page, "memory")
    seen = set()
    for share in (0.1, 0.4, 0.7):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        seen.add(page.locator("#memory-detail .head").text_content())
    assert len(seen) == 3


def test_dragging_zooms_and_the_button_shows_all_again(page: Any) -> None:
    page.select_option("#axis", "steps")
    plot = page.locator("#memory-plot")
    box = area(page, "memory")
    page.mouse.move(5, 5)
    before = plot.screenshot()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 100, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, y, steps=5)
    page.mouse.up()
    page.mouse.move(5, 5)
    zoomed = plot.screenshot()
    assert zoomed != before
    page.locator("[data-zoom=memory] button", has_text="All").click()
    page.mouse.move(5, 5)
    assert plot.screenshot() != zoomed
    plot.focus()
    for key in ("+", "-"):
        before = plot.screenshot()
        plot.press(key)
        page.wait_for_timeout(50)
        assert plot.screenshot() != before


def test_keys_go_through_operators_blocks_and_plans(page: Any, report: Any) -> None:
    (chart,) = report.charts(tradeoff=True)
    placed = [block for block in chart.arena if block.offset >= 0 and block.end > block.begin]
    counts = {"memory": len(chart.planned.moments), "addresses": len(placed), "tradeoff": len(chart.tradeoff)}
    for name, count in counts.items():
        plot = page.locator(f"#{name}-plot")
        plot.focus()
        assert plot.get_attribute("aria-valuemax") == str(count)
        plot.press("Home")
        first = plot.get_attribute("aria-valuetext")
        assert plot.get_attribute("aria-valuenow") == "1"
        for key in ("+", "ArrowRight", "ArrowRight"):
            plot.press(key)
        assert plot.get_attribute("aria-valuenow") == "3"
        assert plot.get_attribute("aria-valuetext") != first
        plot.press("End")
        assert plot.get_attribute("aria-valuenow") == str(count)
        plot.press("0")
    page.locator("#memory-plot").press("Home")
    assert page.locator("#memory-plot").get_attribute("aria-valuetext").startswith(chart.planned.moments[0].name)


def test_addresses_show_the_arena_and_the_prediction(page: Any, report: Any) -> None:
    (chart,) = report.charts()
    assert page.locator("#places option").all_text_contents() == ["the arena of the steps", "predicted"]
    page.select_option("#places", "predicted")
    plot = page.locator("#addresses-plot")
    assert plot.get_attribute("aria-valuemax") == str(len(chart.planned.blocks))
    largest = max(block.bytes for block in chart.planned.blocks)
    assert byte_text(largest) in page.locator("#addresses-detail .head").text_content()
    box = area(page, "addresses")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 4)
    assert re.search(r"address .* to .*, from \d+ to \d+ of", page.locator("#addresses-detail .more").text_content())


def rows_of(page: Any, table: str) -> list[list[str]]:
    rows: list[list[str]] = page.locator(f"{table} tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return rows


def test_the_table_of_values_sorts_and_filters(page: Any, report: Any) -> None:
    (chart,) = report.charts()
    assert page.locator("#count").text_content().endswith(f"{len(chart.planned.blocks)} blocks")
    assert rows_of(page, "#values-table")[0][1] == byte_text(max(block.bytes for block in chart.planned.blocks))
    page.locator("#values-table th button", has_text="Bytes").click()
    assert page.locator("#values-table th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert rows_of(page, "#values-table")[0][1] == byte_text(min(block.bytes for block in chart.planned.blocks))
    page.locator("#values-table th button", has_text="Value").click()
    names = [row[0].lower() for row in rows_of(page, "#values-table")]
    assert names[0] <= names[-1]
    page.fill("#find", "blocks.1.attention")
    page.select_option("#state", "recomputed")
    expected = [b for b in chart.planned.blocks if b.kind == "recomputed" and "blocks.1.attention" in b.layer]
    assert expected
    assert page.locator("#count").text_content() == f"{len(expected)} blocks"
    assert {row[2] for row in rows_of(page, "#values-table")} == {"recomputed"}
    page.fill("#find", "no such value")
    assert rows_of(page, "#values-table") == []


def test_more_rows_are_shown_when_asked_for(page: Any, report: Any) -> None:
    (chart,) = report.charts()
    assert len(rows_of(page, "#values-table")) == 200
    page.locator("#more").click()
    assert len(rows_of(page, "#values-table")) == len(chart.planned.blocks)
    assert not page.locator("#more").is_visible()


def test_layers_have_what_they_keep_and_compute_again(page: Any, report: Any) -> None:
    (chart,) = report.charts()
    rows = {row[0]: row for row in rows_of(page, "#layers-table")}
    costs = {cost.layer: cost for cost in chart.planned.by_layer()}
    assert rows["token_embedding"][2] == byte_text(costs["token_embedding"].recomputed_bytes)
    assert rows["norm"][1] == byte_text(costs["norm"].kept_bytes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_each_width_and_axe_finds_nothing_serious(browser: Any, path: Path, width: int, scheme: str) -> None:
    page = opened(browser, path, width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 300) == (scheme == "dark")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = axe.Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
    assert page.problems == []
    page.context.close()


def test_a_choice_of_colors_wins_over_the_system(page: Any) -> None:
    page.select_option("#theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    page.select_option("#theme", "light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_each_method_is_a_choice(browser: Any, tmp_path: Path) -> None:
    lowered = lowered_copy(TwoMethods(), "budget", memory_budget=1.0, methods=("forward", "encode"))
    x = torch.rand(64, 16)
    lowered(x).backward()
    lowered.encode(x).backward()
    report = aten_recompute.report(lowered)
    report.to_html(tmp_path / "page.html")
    page = opened(browser, tmp_path / "page.html")
    for i, chart in enumerate(report.charts()):
        page.select_option("#chart", str(i))
        assert page.locator("h1").text_content().endswith(chart.title)
        assert cards(page)["Predicted peak"] == byte_text(chart.planned.peak_bytes)
    assert page.problems == []
    page.context.close()


def test_names_with_markup_stay_texts(browser: Any, report: Any, tmp_path: Path) -> None:
    """A source file may be called anything."""
    hostile = "</script><img src=x onerror=\"document.title='owned'\">{{JS}}"
    chart = aten_recompute.report(trained_workload(steps=1)).charts(tradeoff=True)[0]
    block = chart.planned.blocks[0]
    chart.planned.blocks[0] = type(block)(**{**vars(block), "name": hostile, "source": hostile, "bytes": 1 << 40})
    other = aten_recompute.report(trained_workload(steps=1))
    other._charts = {True: [chart]}
    other.to_html(tmp_path / "page.html")
    page = opened(browser, tmp_path / "page.html")
    assert rows_of(page, "#values-table")[0][0] == hostile
    assert page.title() != "owned"
    assert page.problems == []
    page.context.close()


def test_the_page_of_resnet50_is_small_and_opens_in_two_seconds(browser: Any, tmp_path: Path) -> None:
    workload = make("resnet50")
    lowered = aten_recompute.lower(torch.jit.script(workload.module), "budget", memory_budget=0.6, cost_model="flops")
    for _ in range(2):
        workload.step(lowered)
    path = tmp_path / "page.html"
    report = aten_recompute.report(lowered)
    report.to_html(path)
    assert path.stat().st_size < 3 * 2**20
    begin = time.perf_counter()
    page = opened(browser, path)
    seconds = time.perf_counter() - begin
    assert cards(page)["Predicted peak"] == byte_text(report.charts()[0].planned.peak_bytes)
    assert page.problems == []
    page.context.close()
    assert seconds < 2
