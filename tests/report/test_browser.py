"""The page in a real browser: everything drawn, controls that work, no error, no request."""

import os
import shutil

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed; it drives the browser"
)
CHROMIUM = os.environ.get("CAROM_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install Debian's chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=[("light", 1280), ("dark", 1280), ("light", 375)], ids=["desktop", "dark", "phone"])
def opened(request, browser, fitted_page):
    scheme, width = request.param
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.problems, page.requested = [], []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda made: page.requested.append(made.url))
    page.goto(fitted_page.as_uri())
    yield page
    assert page.problems == []
    assert page.requested == [fitted_page.as_uri()]
    context.close()


def until(page, holds):
    """Wait for something; the driver's own waiting evaluates strings, which the page forbids."""
    for _ in range(500):
        if holds():
            return
        page.wait_for_timeout(40)
    raise AssertionError("waited in vain")


def test_every_figure_is_drawn(opened):
    boxes = opened.eval_on_selector_all(
        "svg",
        "all => all.map(e => [e.getBoundingClientRect().width, e.querySelectorAll('path, circle').length])",
    )
    assert len(boxes) >= 8
    assert all(width > 200 and parts > 0 for width, parts in boxes)
    # Letters as high as is legible, within the width of the screen.
    height = opened.eval_on_selector_all(
        ".charts svg text", "all => Math.min(...all.map(e => e.getBoundingClientRect().height))"
    )
    assert height >= 9
    assert opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_ink_stands_out_from_the_page(opened):
    """The contrast of letters and curves with what is behind them, by the formula of WCAG 2."""
    found = opened.evaluate(
        """() => {
          const of = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((x) => {
            const s = Number(x) / 255;
            return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
          });
          const light = (color) => {
            const [r, g, b] = of(color);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const back = light(getComputedStyle(document.body).backgroundColor);
          const against = (color) => {
            const [high, low] = [light(color), back].sort((a, b) => b - a);
            return (high + 0.05) / (low + 0.05);
          };
          const text = getComputedStyle(document.querySelector(".charts svg text")).fill;
          const lines = [...document.querySelectorAll(".charts svg path")]
            .map((e) => getComputedStyle(e).stroke).filter((c) => c.startsWith("rgb"));
          const model = getComputedStyle(document.querySelector(".scene .model")).fill;
          return { text: against(text), model: against(model), lines: lines.map(against) };
        }"""
    )
    assert found["text"] > 7
    assert found["model"] > 3
    assert sorted(found["lines"])[len(found["lines"]) // 2] > 1.2


def test_the_scene_by_keyboard(opened):
    place = lambda: opened.get_attribute("#model-0", "cy")  # noqa: E731
    start = place()
    opened.focus("#play")
    opened.keyboard.press("Space")
    until(opened, lambda: int(opened.input_value("#instant")) > 3)
    assert opened.inner_text("#play") == "Pause"
    opened.keyboard.press("Space")
    assert opened.inner_text("#play") == "Play"
    stopped = opened.input_value("#instant")
    assert place() != start
    opened.wait_for_timeout(200)
    assert opened.input_value("#instant") == stopped
    opened.focus("#instant")
    opened.keyboard.press("Home")
    assert place() == start
    opened.keyboard.press("ArrowRight")
    assert opened.input_value("#instant") == "1"
    opened.keyboard.press("End")
    assert opened.input_value("#instant") == opened.get_attribute("#instant", "max")
    assert "held out" in opened.get_attribute("#instant", "aria-valuetext")
    assert opened.inner_text("#clock") == opened.get_attribute("#instant", "aria-valuetext")


def test_playing_ends_and_begins_again(opened):
    opened.select_option("#speed", "4")
    opened.click("#play")
    until(opened, lambda: opened.inner_text("#play") == "Play")
    last = opened.get_attribute("#instant", "max")
    assert opened.input_value("#instant") == last
    opened.select_option("#speed", "0.25")
    opened.click("#play")
    until(opened, lambda: opened.input_value("#instant") != last)
    assert int(opened.input_value("#instant")) < int(last) // 2
    opened.click("#play")
    assert opened.inner_text("#play") == "Play"


def test_everything_is_reached_by_the_tab_key_and_has_a_name(opened):
    names = []
    for _ in range(60):
        opened.keyboard.press("Tab")
        names.append(opened.evaluate("document.activeElement.id"))
    assert {"play", "instant", "speed"} <= set(names)
    unnamed = opened.eval_on_selector_all(
        "button, input, select, svg",
        "all => all.filter(e => !(e.ariaLabel || e.textContent.trim() || e.closest('label'))).length",
    )
    assert unnamed == 0
