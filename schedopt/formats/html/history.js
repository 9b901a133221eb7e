// The search: objective and bound against time, and who found them.

function historyCard(title, { history }, data) {
  const timed = history.every(({ elapsed }) => elapsed !== null);
  const rows = history.map(({ elapsed, objective, bound, source }, i) => [
    timed ? number(elapsed) : String(i + 1), cell(objective), cell(bound), source,
  ]);
  const headings = [timed ? "seconds" : "step", `objective (${data.unit})`, `bound (${data.unit})`, "found by"];
  return element("div", "card", title,
    element("div", "grid", historyPicture(history, timed, data), table(headings, rows, { left: [3] })));
}

function cell(value) { return value === null ? "" : number(value); }

function historyPicture(history, timed, data) {
  const width = 640, height = 210, left = 74, right = 84, top = 12, bottom = 34;
  const lines = [["objective", "var(--ink)"], ["bound", "var(--accent)"]].map(([name, colour]) => ({
    name, colour,
    points: history.map((news, i) => [timed ? news.elapsed : i + 1, news[name]]).filter(([, value]) => value !== null),
  })).filter(({ points }) => points.length);
  const values = lines.flatMap(({ points }) => points.map(([, value]) => value));
  const least = Math.min(...values), most = Math.max(...values), room = (most - least) * 0.06 || 1;
  const last = timed ? Math.max(...history.map(({ elapsed }) => elapsed)) * 1.04 || 1 : history.length + 0.5;
  const x = (time) => left + (time / last) * (width - left - right);
  const y = (value) => top + ((most + room - value) / (most - least + 2 * room)) * (height - top - bottom);
  const picture = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, class: "history", role: "img" },
    svgElement("title", {}, `${lines.map(({ name }) => name).join(" and ")} against ${timed ? "time" : "steps"}`));
  const words = (text, at, anchor) => picture.append(svgElement("text", { x: at[0], y: at[1], "text-anchor": anchor }, text));
  const line = (from, to, colour) => picture.append(svgElement("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: colour }));
  for (const value of roundValues(least - room, most + room, 6)) {
    line([left, y(value)], [width - right, y(value)], "var(--grid)");
    words(number(value), [left - 8, y(value) + 4], "end");
  }
  for (const time of roundValues(0, last, 6).filter((at) => timed || Number.isInteger(at))) words(number(time), [x(time), height - bottom + 16], "middle");
  words(timed ? "seconds" : "steps of the search", [(left + width - right) / 2, height - 3], "middle");
  line([left, height - bottom], [width - right, height - bottom], "var(--line)");
  lines.forEach(({ name, colour, points }) => {
    const path = points.map(([time, value], i) => (i ? `H${x(time)}V${y(value)}` : `M${x(time)},${y(value)}`)).join("");
    picture.append(svgElement("path", { d: `${path}H${width - right}`, fill: "none", stroke: colour, "stroke-width": 1.8 }));
    points.forEach(([time, value], i) => {
      if (i && points[i - 1][1] === value) return;
      picture.append(svgElement("circle", { cx: x(time), cy: y(value), r: 3.2, fill: colour },
        svgElement("title", {}, `${name} ${number(value)} ${data.unit}`)));
    });
  });
  const ends = lines.map(({ points }) => y(points[points.length - 1][1]));
  const apart = ends.length === 2 && Math.abs(ends[1] - ends[0]) < 13;
  lines.forEach(({ name, colour }, i) => {
    const shift = apart ? (i ? 11 : -3) : 4;
    picture.append(svgElement("text", { x: width - right + 6, y: ends[i] + shift, style: `fill: ${colour}` }, name));
  });
  return picture;
}
