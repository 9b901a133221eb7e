// From the compact arrays of the file to arrays of times, one item per op (see data.py).

/** Sums of differences, times a step. */
function sums(differences, step) {
  const made = new Float64Array(differences.length);
  let sum = 0;
  differences.forEach((difference, i) => { made[i] = (sum += difference) * step; });
  return made;
}

/** A schedule whose devices know start and end of their ops and their memory, in real units. */
function decode(raw) {
  const time = raw.time_step[0] / raw.time_step[1];
  const memory = raw.memory_step[0] / raw.memory_step[1];
  const schedule = { ...raw, time, makespan: raw.makespan * time, offsets: [], places: new Map(), devices: [] };
  schedule.forms = raw.forms.map((form) => ({ ...form, parts: form.colours.map(parts) }));
  let offset = 0;
  raw.devices.forEach((device, number) => {
    const count = device.form.length;
    const start = new Float64Array(count), end = new Float64Array(count);
    let now = 0;
    for (let place = 0; place < count; place++) {
      start[place] = (now += device.gap[place]) * time;
      end[place] = (now += device.length[place]) * time;
      schedule.places.set(`${device.form[place]},${device.microbatch[place]}`, { device: number, place });
    }
    schedule.offsets.push(offset);
    offset += count;
    schedule.devices.push({
      ...device, start, end,
      memory: device.memory && {
        time: sums(device.memory.time, time),
        amount: sums(device.memory.amount, memory),
        peak: device.memory.peak * memory,
        capacity: device.memory.capacity === null ? null : device.memory.capacity * memory,
      },
    });
  });
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

/** Amount of memory of a device at a time. */
function memoryAt(row, time) {
  const index = lastUpTo(row.memory.time, time);
  return index < 0 ? 0 : row.memory.amount[index];
}
