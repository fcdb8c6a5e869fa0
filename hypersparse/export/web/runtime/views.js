// Axes laid over the elements of a value, so that reshaping, permuting and slicing move nothing.
//
// An axis of a view is a list of factors. A factor is a count and a stride in the value's dense order: channels, rows,
// columns. A stride of 0 expands.

import { product } from "./checks.js";

/** The channels, rows and columns of a value of this shape. */
export const sidesOf = (shape) => (shape.length === 3 ? [...shape] : [shape[0], 1, product(shape.slice(1))]);

export class View {
  constructor(value, axes, first = 0) {
    Object.assign(this, { value, axes, first });
  }

  /** All elements in their order. */
  static whole(value, shape) {
    return new View(
      value,
      shape.map((side, place) => [[side, product(shape.slice(place + 1))]]),
    );
  }

  get shape() {
    return this.axes.map(lengthOf);
  }

  permuted(order) {
    return new View(
      this.value,
      order.map((axis) => this.axes[axis]),
      this.first,
    );
  }

  /** The view with the last two axes swapped. */
  turned() {
    const order = this.axes.map((_, axis) => axis);
    return this.permuted([...order.slice(0, -2), order.length - 1, order.length - 2]);
  }

  /** Every `step`-th element of an axis; null if an axis of several factors would be split. */
  sliced(axis, start, count, step) {
    const factors = mergedAxis(this.axes[axis]);
    if (factors.length <= 1) {
      const stride = factors.length ? factors[0][1] : 0;
      return this.with(axis, [[count, stride * step]], start * stride);
    }
    const inner = lengthOf(factors.slice(1));
    if (step === 1 && start % inner === 0 && count % inner === 0) {
      const [head, ...rest] = factors;
      return this.with(axis, [[count / inner, head[1]], ...rest], (start / inner) * head[1]);
    }
    if (count !== 1) return null;
    let [moved, left] = [0, start];
    factors.forEach(([, stride], place) => {
      const below = lengthOf(factors.slice(place + 1));
      moved += Math.floor(left / below) * stride;
      left %= below;
    });
    return this.with(axis, [[1, 0]], moved);
  }

  with(axis, factors, moved) {
    const axes = this.axes.map((each, place) => (place === axis ? factors : each));
    return new View(this.value, axes, this.first + moved);
  }

  /** The view with axes of length one repeated, and new axes in front. */
  expanded(shape) {
    const missing = shape.length - this.axes.length;
    const axes = shape.map((to, place) => {
      const axis = place < missing ? [] : this.axes[place - missing];
      return lengthOf(axis) === to ? axis : [[to, 0]];
    });
    return new View(this.value, axes, this.first);
  }

  /** The same elements in other axes; null if a factor would be split unevenly. */
  reshaped(shape) {
    const left = this.axes.flat().filter(([count]) => count !== 1);
    const axes = [];
    for (const side of shape) {
      const taken = [];
      for (let wanted = side; wanted > 1;) {
        const [count, stride] = left.shift();
        const part = commonDivisor(count, wanted);
        if (part === count) {
          taken.push([count, stride]);
        } else if (part === wanted) {
          taken.push([part, (count / part) * stride]);
          left.unshift([count / part, stride]);
        } else {
          const merged = mergedAxis([[count, stride], ...left.slice(0, 1)]);
          if (!left.length || merged.length > 1) return null;
          left[0] = merged[0];
          continue;
        }
        wanted /= part;
      }
      axes.push(taken);
    }
    return new View(this.value, axes, this.first);
  }

  /** The position of every element in the value's dense order. */
  indices() {
    let found = Int32Array.of(this.first);
    for (const [count, stride] of this.axes.flat()) {
      const more = new Int32Array(found.length * count);
      let place = 0;
      for (const at of found) for (let step = 0; step < count; step += 1) more[place++] = at + step * stride;
      found = more;
    }
    return found;
  }

  /** Whether it is a value of this shape in its order. */
  isWhole(shape) {
    if (this.first || product(shape) !== product(this.shape)) return false;
    const plain = View.whole(this.value, shape).reshaped(this.shape);
    return Boolean(plain) && plain.isLike(this);
  }

  /** Whether it has each element of a value of this shape exactly once. */
  covers(shape) {
    const factors = this.axes.flat().filter(([count]) => count !== 1);
    let distance = 1;
    for (const [count, stride] of factors.sort((one, two) => one[1] - two[1])) {
      if (stride !== distance) return false;
      distance *= count;
    }
    return this.first === 0 && distance === product(shape);
  }

  /** The view with the fewest factors. */
  merged() {
    return this.axes.map(mergedAxis);
  }

  isLike(other) {
    return JSON.stringify(this.merged()) === JSON.stringify(other.merged());
  }

  /** The same axes over another value. */
  of(value) {
    return new View(value, this.axes, this.first);
  }
}

const lengthOf = (factors) => factors.reduce((all, [count]) => all * count, 1);

function mergedAxis(axis) {
  const found = [];
  for (const [count, stride] of axis) {
    const last = found[found.length - 1];
    if (count === 1) continue;
    if (last && last[1] === count * stride) found[found.length - 1] = [last[0] * count, stride];
    else found.push([count, stride]);
  }
  return found;
}

const commonDivisor = (first, second) => (second ? commonDivisor(second, first % second) : first);
