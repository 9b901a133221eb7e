// The memory of a device under its capacity, in one row of a chart.

/** Draw it; the figure of the row: its peak in what is shown. */
function drawMemory(chart, memory, top) {
  const c = chart.context, floor = top + chart.memoryRow - 2;
  const scale = (chart.memoryRow - 4) / chart.fullest, limit = memory.capacity ?? Infinity;
  const path = memoryPath(chart, memory), peak = path.reduce((most, { amount }) => Math.max(most, amount), 0);
  const area = (colour, alpha, base, height) => {
    c.fillStyle = colour;
    c.globalAlpha = alpha;
    c.beginPath();
    c.moveTo(path[0].x, floor - base * scale);
    path.forEach(({ x, amount }, i) => {
      const y = floor - height(amount) * scale;
      c.lineTo(x, y);
      c.lineTo(path[i + 1]?.x ?? chart.right, y);
    });
    c.lineTo(chart.right, floor - base * scale);
    c.fill();
    c.globalAlpha = 1;
  };
  area(chart.colours.memory, theme.memory, 0, (amount) => Math.min(amount, limit));
  if (peak > limit) area(chart.colours.over, 1, limit, (amount) => Math.max(amount, limit));
  across(chart, floor + 0.5, theme.grid);
  if (memory.capacity !== null) across(chart, Math.round(floor - limit * scale) + 0.5, theme.ink, [5, 3]);
  return {
    words: memory.capacity ? percent(peak / memory.capacity) : number(peak),
    colour: peak > limit ? chart.colours.over : theme.ink,
  };
}

/** Steps of a memory curve in what is shown; of those in one pixel the largest amount is kept. */
function memoryPath(chart, { time, amount }) {
  const path = [];
  for (let i = Math.max(lastUpTo(time, chart.axis.from), 0); i < time.length && time[i] < chart.axis.to; i++) {
    const x = Math.max(Math.round(chart.x(time[i]) * 2) / 2, LEFT), last = path[path.length - 1];
    if (!last || last.x < x) path.push({ x, amount: amount[i] });
    else if (amount[i] >= last.amount) last.amount = amount[i];
    else path.push({ x: last.x + 0.5, amount: amount[i] }); // the last amount goes on to the next pixel
  }
  return path;
}

/** A thin line across the row. */
function across(chart, y, colour, dashes = []) {
  const c = chart.context;
  c.strokeStyle = colour;
  c.lineWidth = 0.8;
  c.setLineDash(dashes);
  c.beginPath();
  c.moveTo(LEFT, y);
  c.lineTo(chart.right, y);
  c.stroke();
  c.setLineDash([]);
}
