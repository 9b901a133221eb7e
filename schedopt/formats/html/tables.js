// Idle time by cause, the comparison of schedules, and the data of problems.

function comparison({ comparison: { headings, rows } }) {
  return element("div", "card", table(headings, rows, { left: [0, 1, 2], best: (cells) => cells.includes("best") }));
}

/** One bar for each device, on a scale that all schedules share, and the same as a table. */
function idleCard(title, schedule, data, longest) {
  if (!schedule.idle.length) {
    return element("div", "card", title, element("p", "quiet", "Not known: the schedule breaks rules."));
  }
  const used = data.causes.map((cause, i) => ({ ...cause, i })).filter(({ i }) => schedule.idle.some(({ causes }) => causes[i] > 0));
  const bars = element("div", schedule.idle.length > 12 ? "bars many" : "bars");
  schedule.idle.forEach((device, index) => {
    const parts = used.filter(({ i }) => device.causes[i] > 0).map(({ name, colour, i }) => {
      const part = element("span", "part");
      part.style.width = `${(100 * device.causes[i]) / longest}%`;
      part.style.background = colour;
      part.title = `device ${index}, ${name}: ${number(device.causes[i])} ${data.unit}`;
      return part;
    });
    const bar = element("span", "bar", parts);
    if (device.unavoidable !== null) {
      const mark = element("span", "unavoidable");
      mark.style.left = `${(100 * Math.min(device.unavoidable, device.total)) / longest}%`;
      mark.title = `unavoidable by the bound: ${number(device.unavoidable)} ${data.unit}`;
      bar.append(mark);
    }
    const share = schedule.makespan ? percent(device.total / schedule.makespan) : "";
    bars.append(element("span", "name", `device ${index}`), bar, element("span", "total", share));
  });
  const known = schedule.idle[0].unavoidable !== null;
  const rows = schedule.idle.map((device, i) => [
    String(i), ...used.map((cause) => number(device.causes[cause.i])), number(device.total), number(device.work),
    known ? number(device.unavoidable) : "",
  ]);
  const headings = ["device", ...used.map(({ name }) => name), "idle", "work", known ? "unavoidable" : ""];
  return element("div", "card",
    title,
    element("div", "legend", used.map(({ name, colour, meaning }) => explained(swatch(colour), name, meaning)),
      known ? explained(element("span", "mark"), "unavoidable", "by the bound") : null),
    bars,
    folded(`Table, in ${data.unit}`, table(headings, rows, { left: [] })));
}

function explained(sign, name, meaning) {
  return element("span", "", sign, name, element("span", "quiet", `  ${meaning}`));
}

function dataTable({ headings, rows }) { return table(headings, rows, { left: [] }); }

function problemCard(names, { facts, stages, devices }) {
  return element("div", "card",
    names.length ? element("h3", "", `of ${names.join(", ")}`) : null,
    factList(facts),
    element("div", "grid",
      element("div", "", dataTable(devices)),
      element("div", "", dataTable(stages))));
}
