// The search: objective and bound against time, and who found them.

const HISTORY = { width: 640, height: 210, left: 74, right: 556, top: 12, bottom: 176 };

function historyCard(title, { history }, data) {
  const timed = history.every(({ elapsed }) => elapsed !== null);
  const moments = history.map((news, i) => ({ ...news, at: timed ? news.elapsed : i + 1 }));
  const cell = (value) => (value === null ? "" : number(value));
  const rows = moments.map(({ at, objective, bound, source }) => [number(at), cell(objective), cell(bound), source]);
  const headings = [timed ? "seconds" : "step", `objective (${data.unit})`, `bound (${data.unit})`, "found by"];
  return element("div", "card", title,
    element("div", "grid", historyPicture(moments, timed, data), table(headings, rows, { left: [3] })));
}

function historyPicture(moments, timed, data) {
  const series = [["objective", "var(--ink)"], ["bound", "var(--accent)"]].map(([name, colour]) => ({
    name, colour, points: moments.map((news) => ({ ...news, value: news[name] })).filter(({ value }) => value !== null),
  })).filter(({ points }) => points.length);
  const scale = historyScale(moments, series.flatMap(({ points }) => points.map(({ value }) => value)), timed);
  return svgElement("svg", { viewBox: `0 0 ${HISTORY.width} ${HISTORY.height}`, class: "history", role: "img" },
    svgElement("title", {}, `${series.map(({ name }) => name).join(" and ")} against ${timed ? "time" : "steps"}`),
    historyAxes(scale, timed),
    series.map((one) => historyLine(one, scale, data)),
    historyNames(series, scale));
}

/** What the picture spans, and from times and values to its places. */
function historyScale(moments, values, timed) {
  const { left, right, top, bottom } = HISTORY, least = Math.min(...values), most = Math.max(...values);
  const room = (most - least) * 0.06 || 1, from = least - room, to = most + room;
  const last = Math.max(...moments.map(({ at }) => at));
  const end = timed ? last * 1.04 || 1 : last + 0.5;
  return {
    from, to, end,
    x: (at) => left + (at / end) * (right - left),
    y: (value) => top + ((to - value) / (to - from)) * (bottom - top),
  };
}

function historyAxes({ from, to, end, x, y }, timed) {
  const { left, right, bottom, height } = HISTORY;
  const words = (text, at, down, anchor) => svgElement("text", { x: at, y: down, "text-anchor": anchor }, text);
  const line = (down, colour) => svgElement("line", { x1: left, y1: down, x2: right, y2: down, stroke: colour });
  return [
    roundValues(from, to, 6).map((value) => [line(y(value), "var(--grid)"), words(number(value), left - 8, y(value) + 4, "end")]),
    line(bottom, "var(--line)"),
    roundValues(0, end, 6).filter((at) => timed || Number.isInteger(at)).map((at) => words(number(at), x(at), bottom + 16, "middle")),
    words(timed ? "seconds" : "steps of the search", (left + right) / 2, height - 3, "middle"),
  ];
}

/** A line of steps, and a dot for each improvement. */
function historyLine({ name, colour, points }, { x, y }, data) {
  const path = points.map(({ at, value }, i) => (i ? `H${x(at)}V${y(value)}` : `M${x(at)},${y(value)}`)).join("");
  const better = points.filter(({ value }, i) => i === 0 || points[i - 1].value !== value);
  return [
    svgElement("path", { d: `${path}H${HISTORY.right}`, fill: "none", stroke: colour, "stroke-width": 1.8 }),
    better.map(({ at, value, source }) => svgElement("circle", { cx: x(at), cy: y(value), r: 3.2, fill: colour },
      svgElement("title", {}, `${name} ${number(value)} ${data.unit}${source ? `, from ${source}` : ""}`))),
  ];
}

/** Names at the ends of the lines, apart from each other. */
function historyNames(series, { y }) {
  const ends = series.map(({ points }) => y(points[points.length - 1].value));
  const close = ends.length === 2 && Math.abs(ends[1] - ends[0]) < 13;
  return series.map(({ name, colour }, i) => {
    const shift = close ? [-3, 11][i] : 4;
    return svgElement("text", { x: HISTORY.right + 6, y: ends[i] + shift, style: `fill: ${colour}` }, name);
  });
}
