// Ops and memory of one schedule on canvases that share the time axis.

const LEFT = 58, RIGHT = 70, TOP = 24, BETWEEN = 30, INK = "#1b1f24", QUIET = "#59626d";
const FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

/** A canvas of this size, sharp on every screen; its context draws in CSS pixels. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

class Chart {
  constructor(schedule, axis, data, options) {
    Object.assign(this, { schedule, axis, data, options });
    this.canvas = element("canvas");
    this.overlay = element("canvas", "overlay");
    this.overlay.tabIndex = 0;
    this.host = element("div", "canvases", this.canvas, this.overlay);
    const count = schedule.devices.length;
    this.row = count <= 8 ? 26 : count <= 16 ? 20 : 14;
    this.memoryRow = Math.round(this.row * 0.8);
    this.digits = Math.max(...schedule.devices.map((d) => Math.max(0, ...d.microbatch))).toString().length;
    this.most = Math.max(...schedule.devices.map((d) => Math.max(d.memory.peak, d.memory.capacity ?? 0))) || 1;
  }

  get memoryTop() { return TOP + this.schedule.devices.length * this.row + BETWEEN; }

  get height() {
    const rows = this.schedule.devices.length;
    return this.options.memory ? this.memoryTop + rows * this.memoryRow + 6 : TOP + rows * this.row + 6;
  }

  resize() {
    this.width = this.host.clientWidth;
    this.context = sized(this.canvas, this.width, this.height);
    this.over = sized(this.overlay, this.width, this.height);
    this.plotWidth = Math.max(this.width - LEFT - RIGHT, 10);
  }

  x(time) { return LEFT + ((time - this.axis.from) / (this.axis.to - this.axis.from)) * this.plotWidth; }

  time(x) { return this.axis.from + ((x - LEFT) / this.plotWidth) * (this.axis.to - this.axis.from); }

  /** What is at a point: {device, time, area: "ops" or "memory"}, or null. */
  at(x, y) {
    if (x < LEFT || x > LEFT + this.plotWidth) return null;
    const rows = this.schedule.devices.length, time = this.time(x);
    const device = Math.floor((y - TOP) / this.row);
    if (device >= 0 && device < rows) return { device, time, area: "ops" };
    const below = Math.floor((y - this.memoryTop) / this.memoryRow);
    if (this.options.memory && below >= 0 && below < rows) return { device: below, time, area: "memory" };
    return null;
  }

  /** The op of a device that runs at a time, or null. */
  opAt(device, time) {
    const place = lastUpTo(this.schedule.devices[device].start, time);
    return place >= 0 && this.schedule.devices[device].end[place] > time ? { device, place } : null;
  }

  draw() {
    const c = this.context;
    c.clearRect(0, 0, this.width, this.height);
    c.font = FONT;
    this.drawGrid();
    this.schedule.devices.forEach((row, device) => {
      this.drawOps(row, TOP + device * this.row);
      this.drawName(device, TOP + (device + 0.5) * this.row);
    });
    if (this.options.memory) {
      c.fillStyle = QUIET;
      c.textAlign = "left";
      c.textBaseline = "alphabetic";
      c.fillText(`memory in ${this.schedule.memory_unit}`, LEFT, this.memoryTop - 6);
      c.fillText("peak", LEFT + this.plotWidth + 8, this.memoryTop - 6);
      this.schedule.devices.forEach((row, device) => {
        this.drawMemory(row, this.memoryTop + device * this.memoryRow);
        this.drawName(device, this.memoryTop + (device + 0.5) * this.memoryRow);
      });
    }
    this.drawOverlay();
  }

  drawGrid() {
    const c = this.context, bottom = this.height - 6;
    c.textBaseline = "alphabetic";
    c.fillStyle = QUIET;
    c.textAlign = "right";
    c.fillText("device", LEFT - 8, TOP - 8);
    c.textAlign = "left";
    c.fillText("idle", LEFT + this.plotWidth + 8, TOP - 8);
    c.strokeStyle = "#e8eaed";
    c.lineWidth = 1;
    c.beginPath();
    for (const time of this.axis.ticks(this.plotWidth)) {
      const x = Math.round(this.x(time)) + 0.5, words = number(time);
      c.moveTo(x, TOP - 4);
      c.lineTo(x, bottom);
      const half = c.measureText(words).width / 2;
      c.textAlign = "center";
      c.fillText(words, Math.min(Math.max(x, LEFT + half), LEFT + this.plotWidth - half), TOP - 8);
    }
    c.stroke();
  }

  drawName(device, middle) {
    const c = this.context;
    c.fillStyle = QUIET;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillText(String(device), LEFT - 8, middle + 0.5);
  }

  /** Edges are rounded to pixels, so that neighbours leave no seam, whatever their number. */
  drawOps(row, top) {
    const c = this.context, ratio = window.devicePixelRatio || 1;
    const { from, to } = this.axis, forms = this.schedule.forms;
    const needed = this.digits * 6.6 + 3, right = LEFT + this.plotWidth;
    const snap = (x) => Math.round(Math.min(Math.max(x, LEFT), right) * ratio) / ratio;
    let busy = 0;
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (let i = Math.max(lastUpTo(row.start, from), 0); i < row.start.length && row.start[i] < to; i++) {
      if (row.end[i] <= from) continue;
      busy += Math.min(row.end[i], to) - Math.max(row.start[i], from);
      const begin = snap(this.x(row.start[i])), end = snap(this.x(row.end[i]));
      if (end === begin) continue;
      const form = forms[row.form[i]], odd = row.microbatch[i] % 2;
      c.fillStyle = form.colours[odd];
      c.fillRect(begin, top + 1, end - begin > 5 ? end - begin - 1 : end - begin, this.row - 2);
      if (end - begin >= needed && this.row >= 13) {
        c.fillStyle = form.text[odd];
        c.fillText(String(row.microbatch[i]), (begin + end) / 2, top + this.row / 2 + 0.5);
      }
    }
    c.fillStyle = INK;
    c.textAlign = "left";
    c.fillText(percent(Math.max(0, 1 - busy / (to - from))), right + 8, top + this.row / 2 + 0.5);
  }

  drawMemory(row, top) {
    const c = this.context, { memory } = row, colours = this.data.colours;
    const floor = top + this.memoryRow - 2, scale = (this.memoryRow - 4) / this.most;
    const limit = memory.capacity ?? Infinity;
    const path = this.memoryPath(memory);
    const area = (amounts, base) => {
      c.beginPath();
      c.moveTo(path[0].x, floor - base * scale);
      for (let i = 0; i < path.length; i++) {
        const next = i + 1 < path.length ? path[i + 1].x : LEFT + this.plotWidth;
        const y = floor - amounts(path[i].amount) * scale;
        c.lineTo(path[i].x, y);
        c.lineTo(next, y);
      }
      c.lineTo(LEFT + this.plotWidth, floor - base * scale);
      c.fill();
    };
    if (path.length) {
      c.fillStyle = "#78b3d8"; // of memory, lighter
      area((amount) => Math.min(amount, limit), 0);
    }
    const over = memory.peak > limit;
    if (over) {
      c.fillStyle = colours.over;
      area((amount) => Math.max(amount, limit), limit);
    }
    c.strokeStyle = "#b9c0c8";
    this.line(floor + 0.5);
    if (memory.capacity !== null) {
      c.strokeStyle = colours.capacity;
      c.setLineDash([5, 3]);
      c.lineWidth = 0.8;
      this.line(Math.round(floor - limit * scale) + 0.5);
      c.setLineDash([]);
      c.lineWidth = 1;
    }
    c.fillStyle = over ? colours.over : INK;
    c.textAlign = "left";
    c.textBaseline = "middle";
    const share = memory.capacity ? percent(memory.peak / memory.capacity) : number(memory.peak);
    c.fillText(share, LEFT + this.plotWidth + 8, top + this.memoryRow / 2 + 0.5);
  }

  /** Steps of a memory curve in view, the largest amount of each pixel. */
  memoryPath(memory) {
    const path = [];
    for (let i = Math.max(lastUpTo(memory.time, this.axis.from), 0); i < memory.time.length; i++) {
      if (memory.time[i] >= this.axis.to) break;
      const x = Math.max(Math.round(this.x(memory.time[i]) * 2) / 2, LEFT), amount = memory.amount[i];
      const last = path[path.length - 1];
      // the last amount of a pixel goes on to the next one, the largest is seen in it
      if (last && last.x === x) last.amount = Math.max(last.amount, amount);
      else path.push({ x, amount });
      if (last && last.x === x && last.amount !== amount) path.push({ x: x + 0.5, amount });
    }
    return path;
  }

  line(y) {
    this.context.beginPath();
    this.context.moveTo(LEFT, y);
    this.context.lineTo(LEFT + this.plotWidth, y);
    this.context.stroke();
  }

  // ------------------------------------------------------------ what is pointed at and chosen

  drawOverlay() {
    const c = this.over, { pointed, chosen, selection } = this.options;
    c.clearRect(0, 0, this.width, this.height);
    if (chosen && chosen.schedule === this.schedule) this.drawChain(chosen.chain);
    if (pointed !== null && pointed >= this.axis.from && pointed <= this.axis.to) {
      c.fillStyle = "rgb(27 31 36 / 45%)";
      c.fillRect(Math.round(this.x(pointed)), TOP - 4, 1, this.height);
    }
    if (selection) {
      c.fillStyle = "rgb(0 114 178 / 18%)";
      const from = this.x(selection[0]), to = this.x(selection[1]);
      c.fillRect(Math.min(from, to), TOP, Math.abs(to - from), this.height);
    }
  }

  /** Ops of a chain stay as they are, the others fade. */
  drawChain(chain) {
    const c = this.over, { from, to } = this.axis, bottom = TOP + this.schedule.devices.length * this.row;
    const seen = chain.filter(({ device, place }) => {
      const row = this.schedule.devices[device];
      return row.end[place] > from && row.start[place] < to;
    });
    c.save();
    c.beginPath();
    c.rect(LEFT, TOP, this.plotWidth, bottom - TOP);
    c.clip();
    c.fillStyle = "rgb(255 255 255 / 72%)";
    c.fillRect(LEFT, TOP, this.plotWidth, bottom - TOP);
    const boxes = seen.map(({ device, place }) => {
      const row = this.schedule.devices[device], begin = this.x(row.start[place]);
      return [begin, TOP + device * this.row + 1, Math.max(this.x(row.end[place]) - begin, 1), this.row - 2];
    });
    for (const box of boxes) c.clearRect(...box);
    c.strokeStyle = INK;
    c.lineWidth = 1.2;
    c.beginPath();
    boxes.forEach(([x, y, width, height], i) => {
      if (width > 4) c.rect(x + 0.5, y, width - 1, height);
      if (i > 0) {
        const [before, above, length] = boxes[i - 1];
        c.moveTo(before + length, above + height / 2);
        c.lineTo(x, y + height / 2);
      }
    });
    c.stroke();
    c.restore();
  }
}
