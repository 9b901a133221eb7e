// The page: its parts, and what happens when something is pointed at or chosen.

const data = JSON.parse(document.getElementById("data").textContent);
const schedules = data.schedules.map(decode);
const axis = new Axis(Math.max(...schedules.map(({ makespan }) => makespan)) || 1);
const state = { pointed: null, chosen: null, span: null };
const charts = schedules.map((schedule) => new Chart(schedule, axis, data.colours));
const several = schedules.length > 1;
const tip = element("div", "tip");
const panel = element("aside", "chosen");
const spanWords = element("span", "span");

const page = {
  overlays() { for (const chart of charts) drawOverlay(chart, state); },

  draw() {
    for (const chart of charts) chart.draw();
    this.overlays();
    const [from, to] = [axis.from, axis.to].map((time) => number(roundTo(time, (axis.to - axis.from) / 1000)));
    const part = axis.whole ? `all of 0 to ${number(axis.end)}` : `${from} to ${to} of ${number(axis.end)}`;
    spanWords.textContent = `${part} ${data.unit}`;
  },

  /** Something is pointed at, or nothing: `place` is null then. */
  point(chart, place, event) {
    const { chosen } = state;
    const told = place?.area === "ops" && chosen?.schedule === chart.schedule // the panel tells all
      && sameOp(chosen.op, opAt(chart.schedule, place.device, place.time));
    state.pointed = place ? place.time : null;
    tip.hidden = !place || told;
    if (!tip.hidden) {
      tip.replaceChildren(...describe(chart, place, data).filter(Boolean));
      const { offsetWidth: width, offsetHeight: height } = tip;
      tip.style.left = `${Math.max(Math.min(event.clientX + 14, innerWidth - width - 8), 8)}px`;
      tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
    }
    this.overlays();
  },

  drawSpan(span) {
    state.span = span;
    tip.hidden = true;
    this.overlays();
  },

  endSpan([from, to]) {
    state.span = null;
    axis.show(from, to);
  },

  click(chart, { device, time, area }) {
    tip.hidden = true;
    this.choose(area === "ops" ? opAt(chart.schedule, device, time) : null, chart.schedule);
  },

  /** Choose an op of a schedule, or none. */
  choose(op, schedule = state.chosen?.schedule) {
    state.chosen = op && { schedule, op, chain: chainTo(schedule, op), related: relatedTo(schedule, op) };
    panel.hidden = !op;
    if (op) {
      panel.replaceChildren(...panelOf(state.chosen, data, (other) => this.choose(other)).filter(Boolean));
      const start = startOf(schedule, op), end = endOf(schedule, op), length = axis.to - axis.from;
      if (end < axis.from || start > axis.to) axis.show((start + end - length) / 2, (start + end + length) / 2);
    }
    this.overlays();
  },

  /** Choose the op so many places later on the same device. */
  step(by) {
    if (!state.chosen) return;
    const next = neighbour(state.chosen.schedule, state.chosen.op, by);
    if (next) this.choose(next);
  },
};

function figures({ figures: found }) {
  return element("div", "figures", found.map(([name, value, remark]) =>
    element("div", "card", element("div", "quiet", name), element("div", "value", value), element("div", "remark", remark))));
}

function heading() {
  const one = schedules[0];
  if (several) return [element("h1", "", `${schedules.length} schedules`), comparison(data)];
  return [element("h1", "", one.title), element("p", "quiet", one.headline), figures(one)];
}

function toolbar() {
  const kinds = data.kinds.map(({ name, colour, meaning }) => explained(swatch(colour), name, meaning));
  const memory = swatch(data.colours.memory);
  const limited = schedules.some(({ devices }) => devices.some((row) => row.memory && row.memory.capacity !== null));
  memory.style.opacity = "var(--memory)";
  return element("div", "card toolbar",
    element("div", "controls",
      element("span", "group",
        button("−", "zoom out (-)", () => axis.zoom(1 / 0.6)), button("+", "zoom in (+)", () => axis.zoom(0.6)),
        button("←", "earlier (left arrow)", () => axis.move(-0.2)), button("→", "later (right arrow)", () => axis.move(0.2)),
        button("All", "show all (0, or a double click)", () => axis.all())),
      spanWords,
      element("span", "hint quiet", "wheel: zoom · drag: move · shift and drag: zoom to a span · click: choose an op")),
    element("div", "legend", kinds,
      schedules.some(({ forms }) => forms.some(({ darker }) => darker)) ? element("span", "quiet", "darker: later stage of the device") : null,
      element("span", "quiet", "number: microbatch"),
      element("span", "", memory, "memory"),
      limited ? element("span", "", element("span", "dashes"), "capacity") : null,
      element("span", "quiet", "idle, peak: of the span that is shown")));
}

function chartCard(chart) {
  const { schedule } = chart;
  return element("section", "card chart",
    element("div", "chart-head", element("h3", "", several ? schedule.title : "Ops and memory"),
      element("span", "quiet", several ? `${schedule.achieved}; time in ${data.unit}` : `time in ${data.unit}`),
      button("Critical path", "choose the op that ends last, and what holds it", () => page.choose(lastOp(schedule), schedule))),
    several ? element("div", "quiet small", schedule.headline) : null,
    schedule.violations ? element("p", "warning", `Breaks rules of its problem, ${schedule.violations} times; first: ${schedule.violation}`) : null,
    chart.host,
    folded("All figures", factList(schedule.facts), dataTable(schedule.device_table)));
}

function problems() {
  const found = new Map();
  for (const { title, problem } of schedules) {
    const key = JSON.stringify(problem);
    found.set(key, { problem, names: [...(found.get(key)?.names ?? []), title] });
  }
  return [...found.values()].map(({ problem, names }) => problemCard(several ? names : [], problem));
}

/** Title of a card of a schedule, where there are several. */
function titleOf(schedule) { return several ? element("h3", "", schedule.title) : null; }

function searches() {
  const [known, other] = [true, false].map((wanted) => schedules.filter(({ history }) => (history.length > 0) === wanted));
  const names = several ? `the files of ${other.map(({ title }) => title).join(", ")}` : "the file";
  return [
    element("h2", "", "Search"),
    element("div", "grid", known.map((schedule) => historyCard(titleOf(schedule), schedule, data))),
    other.length ? element("p", "quiet", `No history of a search in ${names}.`) : null,
  ];
}

function build() {
  const longest = Math.max(...schedules.flatMap(({ idle }) => idle.map(({ total }) => total)), 0) || 1;
  append(document.body, [
    element("header", "", heading()),
    toolbar(),
    charts.map(chartCard),
    element("h2", "", "Idle time by cause"),
    element("div", "grid", schedules.map((schedule) => idleCard(titleOf(schedule), schedule, data, longest))),
    searches(),
    element("h2", "", several ? "Problems" : "Problem"),
    problems(),
    element("footer", "quiet", data.notes.map((note) => element("div", "", note))),
    tip, panel,
  ]);
  tip.hidden = panel.hidden = true;
}

function start() {
  theme.read();
  build();
  const resize = () => {
    for (const chart of charts) chart.resize();
    page.draw();
  };
  resize();
  axis.listener = () => page.draw();
  for (const chart of charts) listen(chart, page);
  listenToKeys(page, axis);
  addEventListener("resize", resize);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    theme.read();
    page.draw();
  });
}

start();
