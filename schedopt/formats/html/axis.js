// The one time axis of all charts: what part of it is shown, and its ticks.

class Axis {
  constructor(end) {
    this.end = end;
    this.from = 0;
    this.to = end;
    this.listeners = [];
    this.waiting = false;
  }

  /** Show a part; it is kept within the step, and large enough to see something. */
  show(from, to) {
    const length = Math.min(Math.max(to - from, this.end / 1e5), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - length);
    this.to = this.from + length;
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
      for (const listener of this.listeners) listener();
    });
  }

  /** Round times, at least `apart` pixels from each other. */
  ticks(width, apart = 110) {
    const least = ((this.to - this.from) * apart) / width;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((s) => s >= least);
    const times = [];
    for (let i = Math.ceil(this.from / step); i * step <= this.to; i++) times.push(i * step);
    return times;
  }
}
