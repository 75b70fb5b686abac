"""Drives a page of `torchlet inspect --html` in a headless browser: loads, moves, zooms, searches,
clicks, opens.

    torchlet inspect model.pte --html model.html
    python cli/tests/page.py model.html --browser /usr/bin/chromium --pictures folder

Requires the package `playwright`, and Chromium. Prints times, and writes screenshots at three sizes
in light and dark mode for inspection. Fails if the page makes a request, reports an error, or
behaves unexpectedly.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

SIZES = {"desk": (1400, 860), "tablet": (820, 1000), "phone": (390, 780)}
READY = "window.views && views.length && views[0].w"


def drive(page: Page) -> dict[str, Any]:
    """Performs and times the actions of a user."""
    found: dict[str, Any] = {"nodes": page.evaluate("views[0].graph.nodes.length")}
    paint = "(() => { const start = performance.now(); for (let i = 0; i < 5; i++) views[0].paint(); return (performance.now() - start) / 5 })()"
    found["paint_ms"] = page.evaluate(paint)
    page.click("text=Fit")
    found["paint_all_ms"] = page.evaluate(paint)

    # Searches the last call by its name and opens it.
    last = page.evaluate("views[0].graph.nodes.filter(n => n.k !== 'end').at(-1).n")
    start = time.monotonic()
    page.fill("#search", last)
    page.wait_for_selector(".hits button")
    found["search_s"] = time.monotonic() - start
    page.click(".hits button >> nth=-1")
    assert page.inner_text("aside h2") == last, "a click on the search result selects it"
    assert page.evaluate("views[0].selected") is not None

    box = page.locator(".view canvas").first.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    # The search result is centered, so a click in the middle hits it.
    page.evaluate("views[0].selected = null")
    page.wait_for_timeout(100)
    page.mouse.click(x, y)
    assert page.evaluate("views[0].selected") is not None, "a click on a call selects it"
    before = page.evaluate("[views[0].x, views[0].s]")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 20, steps=4)
    page.mouse.up()
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(100)
    after = page.evaluate("[views[0].x, views[0].s]")
    assert after[0] != before[0] and after[1] > before[1], "dragging moves, and the wheel zooms"
    for tab in ("Memory", "Weights", "File", "Graph"):
        page.click(f"nav button:has-text('{tab}')")
        assert page.locator("section.on").count() == 1
    levels = page.locator("[aria-label='level of detail'] option").count()
    page.select_option("[aria-label='level of detail']", str(levels - 1))
    found["nodes_as_one"] = page.evaluate("views[0].graph.nodes.length")
    assert found["nodes_as_one"] <= found["nodes"]
    return found


def main() -> int:
    """Tests the page at each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--browser")
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=arguments.browser, args=["--no-sandbox"]
        )
        for name, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page = context.new_page()
                page.on("pageerror", lambda error: faults.append(str(error)))
                page.on("request", lambda it: it.url.startswith("file:") or faults.append(it.url))
                start = time.monotonic()
                page.goto(arguments.page.resolve().as_uri())
                page.wait_for_function(READY)
                loaded = time.monotonic() - start
                if arguments.pictures:
                    arguments.pictures.mkdir(parents=True, exist_ok=True)
                    page.wait_for_timeout(300)
                    page.screenshot(path=arguments.pictures / f"{name}_{scheme}.png")
                print(name, scheme, {"load_s": loaded, **drive(page)})
                # Nothing overflows the width of the screen.
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    faults.append(f"{name}: {wide} points wide")
                context.close()
        browser.close()
    for fault in faults:
        print("fault:", fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
