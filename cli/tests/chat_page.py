"""Drives the chat page of `torchlet serve` in a browser: conversations, stop, reset, errors, a wrong
key, two pages at once, two models.

    python chat_page.py TORCHLET MODEL --browser CHROMIUM [--pictures FOLDER]

TORCHLET is the command, MODEL a language model with its tokenizer next to it. Requires `playwright`
(without its browsers).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Route, expect, sync_playwright


def serve(command: Path, model: Path | str, *more: str) -> tuple[subprocess.Popen, str]:
    arguments = [str(command), "serve", str(model), "--port", "0", "--backend", "cpu", *more]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline().strip()
    return process, line.removeprefix("listening on ")


def say(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def wait_for_answer(page: Page) -> str:
    expect(page.locator("#send")).to_have_text("Send", timeout=60_000)
    return page.locator(".assistant").last.inner_text()


def converse(page: Page, address: str, pictures: Path | None) -> None:
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )
    page.goto(address)
    assert page.title() == "torchlet"
    say(page, "Tell me about Moses.")
    assert wait_for_answer(page).strip(), "no answer"
    say(page, "What about <b>David</b>?")
    assert wait_for_answer(page).strip()
    # Messages are shown as text, not HTML.
    assert (
        page.locator(".user").last.inner_text() == "What about <b>David</b>?"
        and page.locator("b").count() == 0
    )
    if pictures:
        page.screenshot(path=pictures / "chat.png")
    # The same button stops an answer. This answer never arrives, because a small model might finish
    # before the click.
    page.route("**/v1/chat/completions", lambda route: None)
    say(page, "Tell me more.")
    expect(page.locator("#send")).to_have_text("Stop")
    page.click("#send")
    wait_for_answer(page)
    page.unroute("**/v1/chat/completions")
    assert page.locator(".user").count() == 3
    page.click("#reset")
    assert page.locator("#messages > *").count() == 0
    say(page, "Hello")
    assert page.locator(".user").count() == 1
    wait_for_answer(page)
    assert not problems, problems


ANSWERS = "**/v1/chat/completions"


def event(text: str, reason: str | None = None) -> str:
    return (
        "data: "
        + json.dumps(
            {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}
        )
        + "\n\n"
    )


def fulfil(page: Page, asked: list, **answer) -> None:
    """Replies instead of the server and records the requests."""

    def handle(route: Route) -> None:
        asked.append([message["content"] for message in route.request.post_data_json["messages"]])
        route.fulfill(**answer)

    page.unroute(ANSWERS)
    page.route(ANSWERS, handle)


def go_wrong(page: Page, address: str) -> None:
    """Failed requests show an error and do not affect the next message."""
    page.goto(address)
    asked: list[list[str]] = []
    errors = page.locator(".error")
    refused = json.dumps({"error": {"message": "the context is full: no <room>"}})
    fulfil(page, asked, status=400, content_type="application/json", body=refused)
    say(page, "first")
    wait_for_answer(page)
    expect(errors.last).to_have_text("the context is full: no <room>")
    # A proxy that replies with HTML.
    fulfil(page, asked, status=502, content_type="text/html", body="<h1>Bad Gateway</h1>")
    say(page, "second")
    wait_for_answer(page)
    expect(errors.last).to_have_text("502 Bad Gateway")
    # An answer that breaks off: the received part stays.
    fulfil(
        page,
        asked,
        status=200,
        content_type="text/event-stream",
        body=event("Half an ") + event("answer"),
    )
    say(page, "third")
    assert wait_for_answer(page) == "Half an answer"
    expect(errors.last).to_have_text("the answer was cut off")
    broken = 'data: {"error": {"message": "the session failed"}}\n\n'
    fulfil(page, asked, status=200, content_type="text/event-stream", body=event("Half") + broken)
    say(page, "fourth")
    wait_for_answer(page)
    expect(errors.last).to_have_text("the session failed")
    whole = event("An end\n  with lines") + event("", "length") + "data: [DONE]\n\n"
    fulfil(page, asked, status=200, content_type="text/event-stream", body=whole)
    page.fill("#text", "fifth")
    page.press("#text", "Shift+Enter")
    page.type("#text", "line")
    page.press("#text", "Enter")
    assert wait_for_answer(page) == "An end\n  with lines"
    expect(page.locator(".note")).to_have_count(1)
    assert errors.count() == 4
    assert page.locator(".user").last.inner_text() == "fifth\nline"
    # Nothing is sent during an answer, or without text.
    say(page, "  ")
    assert asked == [
        ["first"],
        ["second"],
        ["third"],
        ["third", "Half an answer", "fourth"],
        ["third", "Half an answer", "fourth", "Half", "fifth\nline"],
    ], asked


def forget_at_once(page: Page, address: str) -> None:
    """A reset during an answer removes it from the next conversation."""
    page.goto(address)
    page.route(ANSWERS, lambda route: None)
    say(page, "Tell me about Moses.")
    expect(page.locator("#send")).to_have_text("Stop")
    say(page, "Not yet.")
    assert page.locator(".user").count() == 1 and page.input_value("#text") == "Not yet."
    page.click("#reset")
    expect(page.locator("#send")).to_have_text("Send")
    asked: list[list[str]] = []
    fulfil(
        page,
        asked,
        status=200,
        content_type="text/event-stream",
        body=event("Hi", "stop") + "data: [DONE]\n\n",
    )
    say(page, "Hello")
    assert wait_for_answer(page) == "Hi"
    assert asked == [["Hello"]], asked
    assert page.locator(".error").count() == 0 and page.locator("#messages > *").count() == 2


def read_long(page: Page, address: str) -> None:
    """The page scrolls with a long answer unless the user scrolled up; a long word is wrapped."""
    page.goto(address)
    body = "".join(event(f"{'x' * 300} line {at}\n") for at in range(2000)) + "data: [DONE]\n\n"
    fulfil(page, [], status=200, content_type="text/event-stream", body=body)
    say(page, "y" * 20_000)
    assert wait_for_answer(page).count("line") == 2000
    box = page.locator("#messages")
    left = box.evaluate(
        "box => [box.scrollHeight - box.scrollTop - box.clientHeight, box.scrollWidth - box.clientWidth]"
    )
    assert left[0] < 40 and left[1] <= 0, left
    box.evaluate("box => box.scrollTop = 0")
    fulfil(
        page,
        [],
        status=200,
        content_type="text/event-stream",
        body=event("short") + "data: [DONE]\n\n",
    )
    say(page, "again")
    wait_for_answer(page)


def side_by_side(context: BrowserContext, address: str) -> None:
    """Two pages have separate conversations, even with a single session."""
    pages = [context.new_page(), context.new_page()]
    for page in pages:
        page.goto(address)
    for page in pages:
        say(page, "Tell me about Moses.")
    for page in pages:
        assert wait_for_answer(page).strip()
        assert page.locator(".user").count() == 1 and page.locator(".error").count() == 0
    pages[0].click("#reset")
    assert pages[1].locator(".user").count() == 1
    for page in pages:
        page.close()


def choose(page: Page, address: str) -> None:
    """Requests go to the chosen model; the conversation continues after a change."""
    page.goto(address)
    model = page.locator("#model")
    expect(model).to_be_hidden()
    page.fill("#key", "secret")
    page.press("#key", "Tab")
    expect(model).to_be_visible()
    assert model.locator("option").all_inner_texts() == ["first", "<second>"]
    asked: list[tuple[str, int]] = []

    def watch(route: Route) -> None:
        body = route.request.post_data_json
        asked.append((body["model"], len(body["messages"])))
        route.continue_()

    page.route(ANSWERS, watch)
    say(page, "Hello")
    assert wait_for_answer(page).strip()
    model.select_option("<second>")
    say(page, "Hello again")
    assert wait_for_answer(page).strip()
    assert asked == [("first", 1), ("<second>", 3)], asked
    assert page.locator(".error").count() == 0


def with_key(page: Page, address: str) -> None:
    page.goto(address)
    say(page, "Hello")
    page.wait_for_selector(".error")
    assert "API key" in page.locator(".error").inner_text()
    page.fill("#key", "secret")
    say(page, "Hello")
    assert wait_for_answer(page).strip()
    assert page.locator(".error").count() == 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"]
        browser = playwright.chromium.launch(
            executable_path=options.browser, headless=True, args=arguments
        )
        for scheme, size in (("light", (1280, 800)), ("dark", (390, 844))):
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": size[0], "height": size[1]}
            )
            pictures = options.pictures / scheme if options.pictures else None
            if pictures:
                pictures.mkdir(exist_ok=True)
            process, address = serve(options.command, options.model)
            try:
                converse(context.new_page(), address, pictures)
                for drive in (go_wrong, forget_at_once, read_long):
                    drive(context.new_page(), address)
                side_by_side(context, address)
            finally:
                process.terminate()
                process.wait()
        process, address = serve(options.command, options.model, "--api-key", "secret")
        try:
            with_key(browser.new_page(), address)
            page = browser.new_page()
            page.goto(address)
            page.fill("#key", "secret")
            with page.expect_response("**/v1/models"):
                page.press("#key", "Tab")
            expect(page.locator("#model")).to_be_hidden()
        finally:
            process.terminate()
            process.wait()
        second = ["--api-key", "secret", f"<second>={options.model}"]
        process, address = serve(options.command, f"first={options.model}", *second)
        try:
            choose(browser.new_page(), address)
        finally:
            process.terminate()
            process.wait()
        browser.close()
    print(
        "the page answers, stops, forgets, tells what went wrong, asks for a key, and lets models be chosen"
    )


if __name__ == "__main__":
    main()
