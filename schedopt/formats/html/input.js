// Mouse, touch and keyboard on a chart. What they do is decided by the `page` they are given.

const STILL = 4; // pixels a pointer may move in a click

function listen(chart, page) {
  const { overlay: target, axis } = chart;
  let press = null;
  target.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !chart.at(event.offsetX, event.offsetY)) return;
    press = { x: event.offsetX, time: chart.time(event.offsetX), from: axis.from, to: axis.to, span: event.shiftKey, moved: false };
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("pointermove", (event) => {
    if (press === null) return page.point(chart, chart.at(event.offsetX, event.offsetY), event);
    press.moved ||= Math.abs(event.offsetX - press.x) > STILL;
    if (!press.moved) return undefined;
    if (press.span) return page.drawSpan([press.time, chart.time(event.offsetX)]);
    const by = ((press.x - event.offsetX) / (chart.right - LEFT)) * (press.to - press.from);
    target.classList.add("moving");
    return axis.show(press.from + by, press.to + by);
  });
  target.addEventListener("pointerup", (event) => {
    if (press === null) return;
    const { moved, span, time } = press;
    press = null;
    target.classList.remove("moving");
    const place = chart.at(event.offsetX, event.offsetY);
    if (moved && span) page.endSpan([time, chart.time(event.offsetX)].sort((a, b) => a - b));
    else if (!moved && place) page.click(chart, place);
  });
  target.addEventListener("pointercancel", () => { press = null; });
  target.addEventListener("pointerleave", () => page.point(chart, null));
  target.addEventListener("dblclick", (event) => { if (chart.at(event.offsetX, event.offsetY)) axis.all(); });
  target.addEventListener("wheel", (event) => {
    if (!chart.at(event.offsetX, event.offsetY)) return; // beside the picture the page scrolls
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && event.deltaY > 0 && axis.whole) return; // nothing to zoom out of: scroll on
    event.preventDefault();
    const pixels = (event.deltaX + event.deltaY * (sideways ? 1 : 0)) * (event.deltaMode ? 16 : 1);
    if (sideways) axis.move(pixels / (chart.right - LEFT));
    else axis.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY) / 400, 0.5)), chart.time(event.offsetX));
  }, { passive: false });
}

/** Keys, when no field or button has a use for them. */
function listenToKeys(page, axis) {
  const acts = {
    ArrowLeft: () => axis.move(-0.2),
    ArrowRight: () => axis.move(0.2),
    "+": () => axis.zoom(0.6),
    "=": () => axis.zoom(0.6),
    "-": () => axis.zoom(1 / 0.6),
    "0": () => axis.all(),
    Escape: () => page.choose(null),
    ",": () => page.step(-1),
    ".": () => page.step(1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in acts)) return;
    acts[event.key]();
    event.preventDefault();
  });
}
