"""How fast the playground is in the browser of this machine. ``pytest -m slow tests/web/test_budget.py -s`` prints it.

Bounds are those of two quiet cores. Each measurement is repeated and the best one counts; where more work waits than
there are cores, the numbers are printed, and the test is skipped with the load as its reason.
"""

import os
import statistics
from collections.abc import Callable

import pytest

from tests.web.conftest import PAGE

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(280)]

FRAMES = """async ([seconds]) => {
  const clock = document.getElementById('clock');
  const step = () => Number(clock.textContent.replaceAll(',', ''));
  let [redraws, last, first] = [0, clock.textContent, step()];
  const start = performance.now();
  while (performance.now() - start < 1000 * seconds) {
    await new Promise(requestAnimationFrame);
    if (clock.textContent !== last) [redraws, last] = [redraws + 1, clock.textContent];
  }
  const passed = (performance.now() - start) / 1000;
  return [(step() - first) / passed, redraws / passed];
}"""
HOVER = """async () => {
  const plane = document.getElementById('plane-A'), readout = document.getElementById('readout');
  const box = plane.getBoundingClientRect();
  const times = [];
  for (let i = 0; i < 30; i++) {
    const before = readout.textContent, start = performance.now();
    const at = { clientX: box.left + 20 + 11 * i, clientY: box.top + 40 + 9 * i, bubbles: true };
    plane.dispatchEvent(new PointerEvent('pointermove', at));
    while (readout.textContent === before && performance.now() - start < 500) await new Promise(requestAnimationFrame);
    times.push(performance.now() - start);
  }
  return times;
}"""


def report(what: str, values: list[float], unit: str, best: Callable[[list[float]], float]) -> float:
    print(f"\n{what}: best {best(values):.0f}, median {statistics.median(values):.0f} {unit} of {len(values)} runs")  # noqa: T201
    return best(values)


def within(is_met: bool) -> None:
    """Hold the budget, if the machine is quiet enough to judge."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if not is_met and load > cores:
        pytest.skip(f"the machine is busy: load {load:.1f} on {cores} cores")
    assert is_met


def running(playground, hidden: list[int]) -> None:
    config = {"nets": [{"hidden": hidden}], "data": {"points": 200, "share": 1}, "train": {"batch": 0, "rate": 0.003}}
    page = playground.open({"config": config}).page
    page.select_option("#speed", "0")
    page.click("#play")
    page.wait_for_timeout(1000)


def test_first_picture(chromium):
    times = []
    for _ in range(5):
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto(PAGE.as_uri())
        page.locator("#plane-A[aria-label*='regions']").wait_for()
        times.append(page.evaluate("() => performance.getEntriesByName('first-picture')[0].startTime"))
        context.close()
    within(report("first picture", times, "ms", min) <= 1000)


def test_training_with_redraws(playground):
    running(playground, [16, 16, 16])
    rates = [playground.page.evaluate(FRAMES, [3]) for _ in range(5)]
    steps = report("2-16-16-16-1, 200 points: steps", [r[0] for r in rates], "a second", max)
    redraws = report("2-16-16-16-1, 200 points: redraws", [r[1] for r in rates], "a second", max)
    within(steps >= 200 and redraws >= 20)


def test_a_large_network(playground):
    running(playground, [32, 32, 32, 32])
    rates = [playground.page.evaluate(FRAMES, [4]) for _ in range(5)]
    regions = int(playground.page.inner_text("#stage-A .key").split(" regions")[0].split()[-1].replace(",", ""))
    print(f"\n2-32-32-32-32-1: {regions} regions")  # noqa: T201
    assert regions >= 3000
    within(report("2-32-32-32-32-1: redraws", [r[1] for r in rates], "a second", max) >= 5)


@pytest.mark.parametrize("hidden", [[16, 16, 16], [32, 32, 32, 32]])
def test_hover(playground, hidden):
    playground.open({"config": {"nets": [{"hidden": hidden}]}})
    times = [statistics.median(playground.page.evaluate(HOVER)) for _ in range(3)]
    within(report(f"hover, {hidden}", times, "ms", min) <= 30)
