// Ops of one device as a line of pixels: fast for any number of them, and true to their shares
// where several share a pixel.

const GAP_FROM = 6; // pixels: from this width on an op has a gap after it

/** [red, green, blue] of a colour "#RRGGBB". */
function parts(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

class Strip {
  constructor(pixels) {
    this.image = new ImageData(pixels, 1);
    this.sums = new Float32Array(4 * pixels); // red, green and blue times the share, and the share
  }

  clear() { this.sums.fill(0); }

  /** Paint from pixel `begin` to `end`, which need not be whole. */
  paint(begin, end, [red, green, blue]) {
    if (end - begin >= GAP_FROM) {
      begin = Math.round(begin);
      end = Math.round(end) - 1;
    }
    for (let pixel = Math.floor(begin); pixel < end; pixel++) {
      const share = Math.min(end, pixel + 1) - Math.max(begin, pixel), at = 4 * pixel;
      this.sums[at] += red * share;
      this.sums[at + 1] += green * share;
      this.sums[at + 2] += blue * share;
      this.sums[at + 3] += share;
    }
  }

  /** The image: the mean colour of each pixel, as opaque as ops fill it. */
  finish() {
    const { sums, image: { data: bytes } } = this;
    for (let at = 0; at < bytes.length; at += 4) {
      const share = sums[at + 3];
      for (let i = 0; i < 3; i++) bytes[at + i] = share ? sums[at + i] / share : 0;
      bytes[at + 3] = 255 * share;
    }
    return this.image;
  }
}
