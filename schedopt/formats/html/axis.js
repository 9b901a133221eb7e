// The one time axis of all charts: what part of it is shown, and round numbers on axes.

class Axis {
  constructor(end) {
    this.end = end;
    this.from = 0;
    this.to = end;
    this.listener = () => {};
    this.waiting = false;
  }

  get whole() { return this.from === 0 && this.to === this.end; }

  /** Show a part; it is kept within the step, and large enough to see something. */
  show(from, to) {
    const length = Math.min(Math.max(to - from, this.end / 1e5), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - length);
    this.to = length === this.end ? this.end : this.from + length;
    this.changed();
  }

  all() { this.show(0, this.end); }

  /** Zoom by a factor around a time that stays where it is. */
  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  /** Move by a share of what is shown. */
  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  /** Draw everything once, before the next picture on the screen. */
  changed() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.listener();
    });
  }

  /** Round times, at least `apart` pixels from each other. */
  ticks(width, apart = 110) { return roundValues(this.from, this.to, width / apart); }
}

/** Multiples of 1, 2 or 5 times a power of ten, at most so many in a span (and one more). */
function roundValues(from, to, count) {
  const least = (to - from) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least * 0.999999);
  const values = [];
  for (let i = Math.ceil(from / step); i * step <= to; i++) values.push(i * step);
  return values;
}
