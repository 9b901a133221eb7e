// What is known of one op, {device, place}, and of the ops around it.

function sameOp(a, b) {
  return a !== null && b !== null && a.device === b.device && a.place === b.place;
}

function startOf(schedule, { device, place }) { return schedule.devices[device].start[place]; }

function endOf(schedule, { device, place }) { return schedule.devices[device].end[place]; }

function formOf(schedule, { device, place }) {
  return schedule.forms[schedule.devices[device].form[place]];
}

function opName(schedule, op) {
  const form = formOf(schedule, op);
  return `${form.stage}${form.kind}${schedule.devices[op.device].microbatch[op.place]}`;
}

/** The op that runs on a device at a time, or null. */
function opAt(schedule, device, time) {
  const row = schedule.devices[device], place = lastUpTo(row.start, time);
  return place >= 0 && row.end[place] > time ? { device, place } : null;
}

/** The op so many places later on the same device, or null. */
function neighbour(schedule, { device, place }, by) {
  return schedule.devices[device].form[place + by] === undefined ? null : { device, place: place + by };
}

/** Why an op does not start earlier: {reason, source, slack}; null if that is not known. */
function bindingOf(schedule, { device, place }) {
  const row = schedule.devices[device], reason = row.reason[place];
  if (reason === undefined) return null;
  let source = null;
  if (row.source[place] >= 0) {
    const on = lastUpTo(schedule.offsets, row.source[place]);
    source = { device: on, place: row.source[place] - schedule.offsets[on] };
  }
  return { reason, source, slack: (row.slack[place] ?? 0) * schedule.time };
}

/** The ops that hold each other, from the first to the one given. */
function chainTo(schedule, op) {
  const chain = [];
  for (let next = op; next; next = bindingOf(schedule, next)?.source ?? null) chain.push(next);
  return chain.reverse();
}

/** What an op needs, and what needs it: two lists of {op, lag}. */
function relatedTo(schedule, { device, place }) {
  const row = schedule.devices[device], form = row.form[place];
  const others = (mine, other) => schedule.edges
    .filter((edge) => edge[mine] === form)
    .map((edge) => ({ op: schedule.places.get(`${edge[other]},${row.microbatch[place]}`), lag: edge[2] * schedule.time }))
    .filter(({ op }) => op !== undefined);
  return { needs: others(1, 0), gives: others(0, 1) };
}

/** The op that ends last; null if there is none. */
function lastOp(schedule) {
  let last = null;
  schedule.devices.forEach((row, device) => {
    const op = { device, place: row.end.length - 1 };
    if (op.place >= 0 && (last === null || endOf(schedule, op) > endOf(schedule, last))) last = op;
  });
  return last;
}
