"""Drives the page that `torchlet serve` has at `/` in a browser: a conversation, a stop, a reset, a wrong key.

    python chat_page.py TORCHLET MODEL --browser CHROMIUM [--pictures FOLDER]

TORCHLET is the command, MODEL a language model with its tokenizer beside it. Needs `playwright` (without its browsers).
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright


def serve(command: Path, model: Path, *more: str) -> tuple[subprocess.Popen, str]:
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
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(address)
    assert page.title() == "torchlet"
    say(page, "Tell me about Moses.")
    assert wait_for_answer(page).strip(), "there is no answer"
    say(page, "What about <b>David</b>?")
    assert wait_for_answer(page).strip()
    # What was said is text, not part of the page.
    assert page.locator(".user").last.inner_text() == "What about <b>David</b>?" and page.locator("b").count() == 0
    if pictures:
        page.screenshot(path=pictures / "chat.png")
    # The same button stops an answer: one that never comes, since a small model's may be over before anybody looks.
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
        browser = playwright.chromium.launch(executable_path=options.browser, headless=True, args=arguments)
        for scheme, size in (("light", (1280, 800)), ("dark", (390, 844))):
            context = browser.new_context(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
            pictures = options.pictures / scheme if options.pictures else None
            if pictures:
                pictures.mkdir(exist_ok=True)
            process, address = serve(options.command, options.model)
            try:
                converse(context.new_page(), address, pictures)
            finally:
                process.terminate()
                process.wait()
        process, address = serve(options.command, options.model, "--api-key", "secret")
        try:
            with_key(browser.new_page(), address)
        finally:
            process.terminate()
            process.wait()
        browser.close()
    print("the page answers, stops, forgets, and asks for a key")


if __name__ == "__main__":
    main()
