// In words: what is pointed at, and all about the chosen op.

/** Lines about a place in a chart: an op, idle time, or memory. */
function describe(chart, { device, time, area }, data) {
  const { schedule } = chart, row = schedule.devices[device];
  const lines = [];
  const op = opAt(schedule, device, time);
  if (area === "memory") lines.push(element("div", "op", `memory of device ${device}`));
  else if (op) lines.push(...opLines(schedule, op, data));
  else lines.push(...idleLines(schedule, device, time, data));
  if (area === "memory") lines.push(element("div", "", `at ${number(time)} ${data.unit}`));
  if (row.memory) lines.push(element("div", "", `${area === "memory" ? "" : "memory then: "}${amountText(schedule, row, time)}`));
  return lines;
}

function opLines(schedule, op, data) {
  const form = formOf(schedule, op), row = schedule.devices[op.device];
  const odd = row.microbatch[op.place] % 2;
  const name = element("div", "op", swatch(form.colours[odd]), opName(schedule, op));
  name.append(element("span", "quiet", `  ${kindText(form.kind, data)}`));
  return [
    name,
    element("div", "quiet", `stage ${form.stage}, microbatch ${row.microbatch[op.place]}, ${row.name}`),
    element("div", "", spanText(startOf(schedule, op), endOf(schedule, op), data)),
    element("div", "", whyText(schedule, op, data)),
  ];
}

function idleLines(schedule, device, time, data) {
  const row = schedule.devices[device], before = lastUpTo(row.start, time), next = { device, place: before + 1 };
  const from = before < 0 ? 0 : row.end[before], more = next.place < row.start.length;
  const to = more ? row.start[next.place] : schedule.makespan;
  return [
    element("div", "op", `${row.name} is idle`),
    element("div", "", spanText(from, to, data)),
    more ? element("div", "", `then ${opName(schedule, next)}; ${whyText(schedule, next, data)}`) : null,
  ];
}

function kindText(kind, data) { return data.kinds.find(({ name }) => name === kind)?.meaning ?? ""; }

function spanText(from, to, data) {
  return `${number(from)} to ${number(to)} ${data.unit}, lasts ${number(to - from)}`;
}

function amountText(schedule, row, time) {
  const amount = memoryAt(row, time), { capacity } = row.memory;
  const share = capacity ? `, ${percent(amount / capacity)} of the capacity` : "";
  return `${number(amount)} ${schedule.memory_unit}${share}`;
}

/** Why an op could not start earlier. */
function whyText(schedule, op, data) {
  const binding = bindingOf(schedule, op);
  if (binding === null) return "why it waits is not known: the schedule breaks rules";
  const { reason, source, slack } = binding, { name, meaning } = data.reasons[reason];
  const late = slack ? `; it starts ${number(slack)} ${data.unit} later than it could` : "";
  if (source === null) return `not earlier: ${meaning}${late}`;
  const end = `${opName(schedule, source)} ends at ${number(endOf(schedule, source))}`;
  return `waits for ${opName(schedule, source)} (${name}): ${meaning}; ${end}${late}`;
}

/** What the chain that holds an op is made of: {work, lags, slack}, which sum to its start. */
function chainParts(schedule, chain) {
  const parts = { work: 0, lags: 0, slack: 0 };
  chain.forEach((op, i) => {
    const before = i ? endOf(schedule, chain[i - 1]) : 0, { slack } = bindingOf(schedule, op) ?? { slack: 0 };
    parts.slack += slack;
    parts.lags += startOf(schedule, op) - before - slack;
    if (i < chain.length - 1) parts.work += endOf(schedule, op) - startOf(schedule, op);
  });
  return parts;
}

/** The panel of the chosen op; `choose` is called with another op, or null to close it. */
function panelOf({ schedule, op, chain, related }, data, choose) {
  const link = (other, words = opName(schedule, other)) => button(words, "choose this op", () => choose(other));
  const links = (found, words) => found.map(({ op: other, lag }) =>
    element("li", "", link(other), ` ${words(other)}${lag ? `, lag ${number(lag)}` : ""}`));
  const source = bindingOf(schedule, op)?.source ?? null;
  const previous = neighbour(schedule, op, -1), next = neighbour(schedule, op, 1);
  const row = schedule.devices[op.device], start = startOf(schedule, op), end = endOf(schedule, op);
  const parts = chainParts(schedule, chain), amounts = row.memory ? [["at its start", start], ["after it", end]] : [];
  return [
    button("×", "close (Escape)", () => choose(null)),
    ...opLines(schedule, op, data),
    source ? element("p", "", link(source, `go to ${opName(schedule, source)}`)) : null,
    factList([
      ...amounts.map(([words, time]) => [`memory ${words}`, amountText(schedule, row, time)]),
      ["chain that holds it", `${chain.length} ops: ${number(parts.work)} ${data.unit} of work, ` +
        `${number(parts.lags)} of lags${parts.slack ? `, ${number(parts.slack)} unforced` : ""}`],
    ]),
    related.needs.length ? element("h4", "", "needs") : null,
    element("ul", "", links(related.needs, (other) => `ends at ${number(endOf(schedule, other))}`)),
    related.gives.length ? element("h4", "", "is needed by") : null,
    element("ul", "", links(related.gives, (other) => `starts at ${number(startOf(schedule, other))}`)),
    element("p", "steps", previous ? link(previous, "← before it on its device") : null,
      next ? link(next, "after it →") : null),
  ];
}
