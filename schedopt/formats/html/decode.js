// From the compact arrays of the file to arrays of times, one item per op (see data.py).

/** Sums of differences, as numbers. */
function sums(differences) {
  const made = new Float64Array(differences.length);
  let sum = 0;
  differences.forEach((difference, i) => { made[i] = sum += difference; });
  return made;
}

/** A schedule whose devices know start and end of their ops and their memory, in real units. */
function decode(raw) {
  const time = raw.time_step[0] / raw.time_step[1];
  const memory = raw.memory_step[0] / raw.memory_step[1];
  const schedule = { ...raw, time, makespan: raw.makespan * time, offsets: [], devices: [] };
  let offset = 0;
  for (const device of raw.devices) {
    const count = device.form.length;
    const start = new Float64Array(count), end = new Float64Array(count);
    let now = 0;
    for (let i = 0; i < count; i++) {
      start[i] = (now += device.gap[i]) * time;
      end[i] = (now += device.length[i]) * time;
    }
    schedule.offsets.push(offset);
    offset += count;
    schedule.devices.push({
      ...device, start, end,
      memory: {
        time: sums(device.memory.time).map((t) => t * time),
        amount: sums(device.memory.amount).map((a) => a * memory),
        peak: device.memory.peak * memory,
        capacity: device.memory.capacity === null ? null : device.memory.capacity * memory,
      },
    });
  }
  return schedule;
}

/** Index of the last value that is at most `wanted`, -1 if there is none. */
function lastUpTo(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The op at a position over all devices: its device and its place there. */
function opAt(schedule, position) {
  const device = lastUpTo(schedule.offsets, position);
  return { device, place: position - schedule.offsets[device] };
}

function opName(schedule, { device, place }) {
  const row = schedule.devices[device];
  const form = schedule.forms[row.form[place]];
  return `${form.stage}${form.kind}${row.microbatch[place]}`;
}

/** What an op waits for, or null if that is nothing or not known. */
function sourceOf(schedule, { device, place }) {
  const source = schedule.devices[device].source[place];
  return source === undefined || source < 0 ? null : opAt(schedule, source);
}

/** The ops that hold each other, from the start to the one given. */
function chainTo(schedule, op) {
  const chain = [];
  for (let next = op; next; next = sourceOf(schedule, next)) chain.push(next);
  return chain.reverse();
}

/** The op that ends last. */
function lastOp(schedule) {
  let last = null, latest = -1;
  schedule.devices.forEach((row, device) => {
    const place = row.end.length - 1;
    if (place >= 0 && row.end[place] > latest) {
      latest = row.end[place];
      last = { device, place };
    }
  });
  return last;
}

function memoryAt(row, time) {
  const index = lastUpTo(row.memory.time, time);
  return index < 0 ? 0 : row.memory.amount[index];
}
