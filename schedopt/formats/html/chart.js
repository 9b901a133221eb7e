// Ops and memory of one schedule on a canvas that shares the time axis.

const LEFT = 58, RIGHT = 66, TOP = 24, BETWEEN = 32, BOTTOM = 6;
const FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

/** Colours of the style sheet, for canvases: those of ops, memory and causes come from the data. */
const theme = {
  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "quiet", "grid", "veil", "accent", "memory"]) {
      this[name] = style.getPropertyValue(`--${name}`).trim();
    }
  },
};

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
  constructor(schedule, axis, colours) {
    Object.assign(this, { schedule, axis, colours });
    this.canvas = element("canvas");
    this.line = element("canvas"); // one row of ops, before it is stretched
    this.overlay = element("canvas", "overlay");
    this.overlay.tabIndex = 0;
    this.overlay.setAttribute("role", "img");
    this.overlay.setAttribute("aria-label", `ops and memory over time: ${schedule.title}, ${schedule.achieved}`);
    this.host = element("div", "canvases", this.canvas, this.overlay);
    const rows = schedule.devices.length;
    this.memories = schedule.devices.filter(({ memory }) => memory !== null); // of the devices, which come first
    this.row = rows <= 8 ? 26 : rows <= 16 ? 20 : 15;
    this.memoryRow = Math.round(this.row * 0.85);
    this.bottomOfOps = TOP + rows * this.row;
    this.topOfMemory = this.bottomOfOps + BETWEEN;
    this.height = this.topOfMemory + this.memories.length * this.memoryRow + BOTTOM;
    const most = schedule.devices.map((row) => row.microbatch.reduce((a, b) => Math.max(a, b), 0));
    this.labelWidth = String(Math.max(...most)).length * 6.6 + 3;
    this.fullest = Math.max(...this.memories.map(({ memory }) => Math.max(memory.peak, memory.capacity ?? 0))) || 1;
  }

  resize() {
    this.width = this.host.clientWidth;
    this.context = sized(this.canvas, this.width, this.height);
    this.over = sized(this.overlay, this.width, this.height);
    this.right = Math.max(this.width - RIGHT, LEFT + 10);
    this.line.width = Math.round((this.right - LEFT) * (window.devicePixelRatio || 1));
    this.line.height = 1;
    this.strip = new Strip(this.line.width);
  }

  x(time) { return LEFT + ((time - this.axis.from) / (this.axis.to - this.axis.from)) * (this.right - LEFT); }

  time(x) { return this.axis.from + ((x - LEFT) / (this.right - LEFT)) * (this.axis.to - this.axis.from); }

  /** What is at a point: {device, time, area: "ops" or "memory"}, or null. */
  at(x, y) {
    if (x < LEFT || x > this.right) return null;
    const areas = [["ops", TOP, this.row, this.schedule.devices], ["memory", this.topOfMemory, this.memoryRow, this.memories]];
    for (const [area, top, height, rows] of areas) {
      const device = Math.floor((y - top) / height);
      if (device >= 0 && device < rows.length) return { device, time: this.time(x), area };
    }
    return null;
  }

  /** Centre of an op, kept within the picture. */
  centre(op) {
    const middle = this.x((startOf(this.schedule, op) + endOf(this.schedule, op)) / 2);
    return [Math.min(Math.max(middle, LEFT), this.right), TOP + (op.device + 0.5) * this.row];
  }

  draw() {
    const c = this.context;
    c.clearRect(0, 0, this.width, this.height);
    c.font = FONT;
    this.drawTimes();
    this.drawHeading("ops", "idle", TOP - 8);
    this.drawHeading(`memory in ${this.schedule.memory_unit}`, "peak", this.topOfMemory - 7);
    this.schedule.devices.forEach((row, device) => {
      this.drawRow(row, TOP + device * this.row, this.row, this.drawOps(row, TOP + device * this.row));
    });
    this.memories.forEach((row, device) => {
      const top = this.topOfMemory + device * this.memoryRow;
      this.drawRow(row, top, this.memoryRow, drawMemory(this, row.memory, top));
    });
  }

  words(words, x, y, colour, align) {
    const c = this.context;
    c.fillStyle = colour;
    c.textAlign = align;
    c.textBaseline = "alphabetic";
    c.fillText(words, x, y);
  }

  /** Where a part of the chart begins; the axis has its ticks in the heading of the ops. */
  drawHeading(left, right, y) {
    this.words("device", LEFT - 8, y, theme.quiet, "right");
    this.words(right, this.right + 8, y, theme.quiet, "left");
    if (left !== "ops") this.words(left, LEFT, y, theme.quiet, "left");
  }

  drawTimes() {
    const c = this.context;
    c.strokeStyle = theme.grid;
    c.lineWidth = 1;
    c.beginPath();
    for (const time of this.axis.ticks(this.right - LEFT)) {
      const x = Math.round(this.x(time)) + 0.5, words = number(time), half = c.measureText(words).width / 2;
      c.moveTo(x, TOP - 4);
      c.lineTo(x, this.bottomOfOps);
      c.moveTo(x, this.topOfMemory);
      c.lineTo(x, this.height - BOTTOM);
      this.words(words, Math.min(Math.max(x, LEFT + half), this.right - half), TOP - 8, theme.quiet, "center");
    }
    c.stroke();
  }

  /** Label of a row, and a figure of what is shown of it. */
  drawRow({ label }, top, height, { words, colour = theme.ink }) {
    const y = top + height / 2 + 4;
    this.words(label, LEFT - 8, y, theme.quiet, "right");
    this.words(words, this.right + 8, y, colour, "left");
  }

  /** Its ops, as a line of pixels that is stretched, with labels where there is room. */
  drawOps(row, top) {
    const { from, to } = this.axis, width = this.right - LEFT, labels = [];
    const scale = width / (to - from), pixels = this.strip.image.width / (to - from);
    let busy = 0;
    this.strip.clear();
    for (let i = Math.max(lastUpTo(row.start, from), 0); i < row.start.length && row.start[i] < to; i++) {
      if (row.end[i] <= from) continue;
      const begin = Math.max(row.start[i], from) - from, end = Math.min(row.end[i], to) - from;
      const form = this.schedule.forms[row.form[i]], odd = row.microbatch[i] % 2;
      busy += end - begin;
      this.strip.paint(begin * pixels, end * pixels, form.parts[odd]);
      if ((end - begin) * scale >= this.labelWidth) {
        labels.push([row.microbatch[i], LEFT + ((begin + end) / 2) * scale, form.text[odd]]);
      }
    }
    this.line.getContext("2d").putImageData(this.strip.finish(), 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.line, LEFT, top + 1, width, this.row - 2);
    for (const [label, x, colour] of labels) this.words(String(label), x, top + this.row / 2 + 4, colour, "center");
    const shown = Math.min(to, this.schedule.makespan) - from; // others on the axis may be longer
    return { words: shown > 0 ? percent(Math.max(0, 1 - busy / shown)) : "" };
  }
}
