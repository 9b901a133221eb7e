// What lies over a chart: the time that is pointed at, a span that is drawn, the chosen op.

function drawOverlay(chart, { pointed, chosen, span }) {
  const c = chart.over, bottom = chart.height - BOTTOM;
  c.clearRect(0, 0, chart.width, chart.height);
  c.save();
  c.beginPath();
  c.rect(LEFT, TOP - 4, chart.right - LEFT, bottom - TOP + 4);
  c.clip();
  if (chosen && chosen.schedule === chart.schedule) drawChoice(chart, chosen);
  if (pointed !== null) {
    c.fillStyle = theme.quiet;
    c.fillRect(Math.round(chart.x(pointed)), TOP - 4, 1, bottom);
  }
  if (span) {
    const [from, to] = span.map((time) => chart.x(time));
    c.globalAlpha = 0.2;
    c.fillStyle = theme.accent;
    c.fillRect(Math.min(from, to), TOP, Math.abs(to - from), bottom);
  }
  c.restore();
}

/** The chosen op, what it needs, what needs it and what it waited for stay; the others fade. */
function drawChoice(chart, { op, chain, related }) {
  const c = chart.over, box = (other) => boxOf(chart, other);
  const seen = chain.map(box), needs = related.needs.map((other) => box(other.op));
  const gives = related.gives.map((other) => box(other.op)), own = box(op);
  c.fillStyle = theme.veil;
  c.fillRect(LEFT, TOP, chart.right - LEFT, chart.bottomOfOps - TOP);
  for (const [x, y, width, height] of [...seen, ...needs, ...gives, own]) c.clearRect(x, y, width, height);
  c.globalAlpha = 0.16; // its time in the memory curves
  c.fillStyle = theme.ink;
  c.fillRect(own[0], chart.topOfMemory, own[2], chart.height - BOTTOM - chart.topOfMemory);
  c.globalAlpha = 1;
  outline(c, seen, theme.ink, 1);
  connect(c, seen.slice(1).map((to, i) => [seen[i], to]), theme.ink, 1.2);
  for (const boxes of [needs, gives]) outline(c, boxes, theme.accent, 1.5);
  connect(c, needs.map((from) => [from, own]), theme.accent, 1.5);
  connect(c, gives.map((to) => [own, to]), theme.accent, 1.5, [4, 3]);
  outline(c, [own], theme.accent, 3);
}

function boxOf(chart, op) {
  const begin = chart.x(startOf(chart.schedule, op)), end = chart.x(endOf(chart.schedule, op));
  return [begin, TOP + op.device * chart.row + 1, Math.max(end - begin, 1), chart.row - 2];
}

function outline(c, boxes, colour, width) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.setLineDash([]);
  for (const [x, y, length, height] of boxes) if (length > 3) c.strokeRect(x + 0.5, y, length - 1, height);
}

/** Lines from the end of a box to the begin of another. */
function connect(c, pairs, colour, width, dashes = []) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.setLineDash(dashes);
  c.beginPath();
  for (const [[x, y, length, height], to] of pairs) {
    c.moveTo(x + length, y + height / 2);
    c.lineTo(to[0], to[1] + to[3] / 2);
  }
  c.stroke();
}
