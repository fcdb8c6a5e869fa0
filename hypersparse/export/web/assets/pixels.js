// Preprocessing of an image for a network, with the results of `hypersparse serve` and Pillow.

const SEEN = 512; // pixels on the longer side are enough to find ink
const LEAST_CONTRAST = 16; // of 255, between ink and paper
const INNER = 20 / 28; // of the side is what a centered drawing takes up, as in MNIST
const MOST_BLOCK = 16; // pixels of a picture that become one, in each direction
const DIGIT_SIDE = 8; // of the data set digits: a pixel counts the set ones in a block of a bitmap
const DIGIT_BLOCK = 4;
const BRIGHTNESS = 15;
const [BLUR_SELF, BLUR_BESIDE] = [11184811, 2796202]; // 2/3 and 1/6 of 2^24, as Pillow rounds them
const FIXED_POINT = 2 ** 22; // one, as Pillow's weights have it
const [DRAWN_WIDTH, DRAWN_NARROW, DRAWN_INK] = [18, 0.45, 312]; // as hypersparse/data/digits.py found them

// Values [channels, height, width] from 0 to 255 for a source that a canvas can draw.
function pixelsOf(source, [channels, height, width], { drawn, darkOnLight }) {
  const isDigit = channels === 1 && height === DIGIT_SIDE && width === DIGIT_SIDE;
  if ((isDigit && (source.width !== width || source.height !== height)) || (channels === 1 && drawn)) {
    const scale = Math.min(1, SEEN / Math.max(source.width, source.height));
    const [wide, high] = [source.width, source.height].map((side) => Math.max(Math.round(side * scale), 1));
    const ink = inkOf(grey(rgbaOf(source, [0, 0, source.width, source.height], wide, high)), wide, high);
    if (isDigit) return fromDrawing(ink, wide, high);
    const field = centered(ink, [wide, high], width, height);
    return darkOnLight ? field.map((value) => 255 - value) : field;
  }
  return middleOf(source, channels, height, width);
}

// The central square of an image, drawn at a multiple of the size and averaged over blocks.
function middleOf(source, channels, height, width) {
  const scale = Math.min(source.width / width, source.height / height);
  const [wide, high] = [scale * width, scale * height];
  const block = Math.min(Math.max(Math.floor(scale), 1), MOST_BLOCK);
  const part = [(source.width - wide) / 2, (source.height - high) / 2, wide, high];
  return averaged(rgbaOf(source, part, width * block, height * block), channels, [height, width], block);
}

function averaged(rgba, channels, [height, width], block) {
  const pixels = new Uint8Array(channels * height * width);
  const values = channels === 1 ? [grey(rgba)] : [0, 1, 2].map((channel) => (at) => rgba[4 * at + channel]);
  values.forEach((value, channel) => {
    const read = channels === 1 ? (at) => value[at] : value;
    for (let at = 0; at < height * width; at += 1) {
      const first = Math.floor(at / width) * block * width * block + (at % width) * block;
      let sum = 0;
      for (let y = 0; y < block; y += 1) for (let x = 0; x < block; x += 1) sum += read(first + y * width * block + x);
      pixels[channel * height * width + at] = Math.round(sum / block ** 2);
    }
  });
  return pixels;
}

// A part of a source, resized on white.
function rgbaOf(source, part, width, height) {
  const context = el("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(source, ...part, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

function grey(rgba) {
  const values = new Uint8Array(rgba.length / 4);
  for (let at = 0; at < values.length; at += 1) {
    values[at] = (19595 * rgba[4 * at] + 38470 * rgba[4 * at + 1] + 7471 * rgba[4 * at + 2] + 32768) >> 16;
  }
  return values;
}

// 255 where there is ink, on paper of any color. Ink differs from the median of the border.
function inkOf(values, width, height) {
  const rim = [...values.subarray(0, width), ...values.subarray(width * (height - 1))];
  for (let y = 0; y < height; y += 1) rim.push(values[y * width], values[y * width + width - 1]);
  rim.sort((first, second) => first - second);
  const middle = (rim[(rim.length - 1) >> 1] + rim[rim.length >> 1]) / 2;
  const distances = Float32Array.from(values, (value) => Math.abs(value - middle));
  const most = distances.reduce((first, second) => Math.max(first, second), 0);
  if (most < LEAST_CONTRAST) throw new Error("Nothing is drawn: the picture has one color.");
  return Uint8Array.from(distances, (distance) => Math.floor((distance / most) * 255));
}

// The bounding box of the ink: its values, width and height.
function cropped(ink, width, height) {
  let [left, top, right, bottom] = [width, height, 0, 0];
  ink.forEach((value, at) => {
    if (value <= 127) return;
    const [x, y] = [at % width, Math.floor(at / width)];
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x + 1), Math.max(bottom, y + 1)];
  });
  const size = [right - left, bottom - top];
  const part = new Uint8Array(size[0] * size[1]);
  for (let y = 0; y < size[1]; y += 1) {
    const first = (top + y) * width + left;
    part.set(ink.subarray(first, first + size[0]), y * size[0]);
  }
  return [part, ...size];
}

// Means of blocks in another size, rows first, as Pillow's BOX.
function resized(values, [width, height], wide, high) {
  const rows = alongLines(values, {
    count: height,
    from: width,
    to: wide,
    step: 1,
    next: width,
    outStep: 1,
    outNext: wide,
  });
  return alongLines(rows, { count: wide, from: height, to: high, step: wide, next: 1, outStep: wide, outNext: 1 });
}

function alongLines(values, { count, from, to, step, next, outStep, outNext }) {
  const scale = from / to;
  const reach = 0.5 * Math.max(scale, 1);
  const found = new Uint8Array(count * to);
  for (let out = 0; out < to; out += 1) {
    const center = (out + 0.5) * scale;
    const inside = [];
    for (
      let at = Math.max(Math.floor(center - reach + 0.5), 0);
      at < Math.min(Math.floor(center + reach + 0.5), from);
      at += 1
    ) {
      const place = (at - center + 0.5) / Math.max(scale, 1);
      if (place > -0.5 && place <= 0.5) inside.push(at);
    }
    const weight = Math.floor(FIXED_POINT / inside.length + 0.5);
    for (let line = 0; line < count; line += 1) {
      const sum = inside.reduce((all, at) => all + weight * values[line * next + at * step], FIXED_POINT / 2);
      found[line * outNext + out * outStep] = Math.floor(sum / FIXED_POINT);
    }
  }
  return found;
}

// Three box blurs of weights 1/6, 2/3, 1/6 in each direction: Pillow's Gaussian blur with a deviation of 1.
function blurred(values, side) {
  let found = values;
  for (const [step, next] of [
    [1, side],
    [side, 1],
  ]) {
    for (let pass = 0; pass < 3; pass += 1) {
      const before = found;
      found = new Uint8Array(before.length);
      for (let line = 0; line < side; line += 1) {
        for (let at = 0; at < side; at += 1) {
          const place = (offset) => before[line * next + Math.min(Math.max(at + offset, 0), side - 1) * step];
          const sum = BLUR_SELF * place(0) + BLUR_BESIDE * (place(-1) + place(1));
          found[line * next + at * step] = Math.floor(sum / 2 ** 24 + 0.5);
        }
      }
    }
  }
  return found;
}

// A drawing as an image [8, 8] like those of the data set digits: its position, size and stroke width normalized.
function fromDrawing(ink, width, height) {
  const side = DIGIT_SIDE * DIGIT_BLOCK;
  const [drawn, drawnWidth, drawnHeight] = cropped(ink, width, height);
  const shape = drawnWidth / drawnHeight;
  const wide = Math.max(rounded(DRAWN_WIDTH * Math.min(shape / DRAWN_NARROW, 1)), 1);
  const high = Math.max(rounded(side * Math.min(2 / shape, 1)), 1);
  const small = resized(drawn, [drawnWidth, drawnHeight], wide, high);
  const bitmap = new Uint8Array(side * side);
  const [left, top] = [Math.floor((side - wide) / 2), Math.floor((side - high) / 2)];
  for (let y = 0; y < high; y += 1) bitmap.set(small.subarray(y * wide, (y + 1) * wide), (top + y) * side + left);
  const soft = blurred(bitmap, side);
  const order = Int32Array.from(bitmap, (value, at) => 256 * soft[at] + value);
  const darkest = Math.max(order.slice().sort()[order.length - DRAWN_INK], 256);
  const pixels = new Uint8Array(DIGIT_SIDE ** 2);
  order.forEach((value, at) => {
    const place = Math.floor(at / side / DIGIT_BLOCK) * DIGIT_SIDE + Math.floor((at % side) / DIGIT_BLOCK);
    if (value >= darkest) pixels[place] += BRIGHTNESS;
  });
  return pixels;
}

// Round half to even, as in Python.
const rounded = (value) => (value % 1 === 0.5 ? 2 * Math.round(value / 2) : Math.round(value));

// A drawing centered by its mass, as in MNIST.
function centered(ink, [width, height], fieldWidth, fieldHeight) {
  const [drawn, drawnWidth, drawnHeight] = cropped(ink, width, height);
  const inner = (side) => Math.max(rounded(INNER * side), 1);
  const scale = Math.min(inner(fieldWidth) / drawnWidth, inner(fieldHeight) / drawnHeight);
  const size = [drawnWidth, drawnHeight].map((side) => Math.max(rounded(scale * side), 1));
  const small = resized(drawn, [drawnWidth, drawnHeight], ...size);
  const weight = Math.max(
    small.reduce((sum, value) => sum + value, 0),
    1,
  );
  const [x, y] = [0, 0].map((_, axis) => {
    const place = (at) => (axis ? Math.floor(at / size[0]) : at % size[0]) + 0.5;
    const middle = small.reduce((sum, value, at) => sum + value * place(at), 0) / weight;
    const side = axis ? fieldHeight : fieldWidth;
    return Math.min(Math.max(rounded(side / 2 - middle), 0), side - size[axis]);
  });
  const field = new Uint8Array(fieldWidth * fieldHeight);
  for (let row = 0; row < size[1]; row += 1) {
    field.set(small.subarray(row * size[0], (row + 1) * size[0]), (y + row) * fieldWidth + x);
  }
  return field;
}
