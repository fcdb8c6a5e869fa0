// Predictions of a network for pixels, and their time.

const SHOWN = 5; // classes, the likeliest first
const BATCH = 3; // milliseconds of calls that are timed together, since browser clocks are coarse
const BATCHES = 3;

// A network with its classes and preprocessing, as the file describes them.
class Predictor {
  static async load(bytes, name) {
    return new Predictor(await SparseModel.load(bytes), bytes.length, name);
  }

  constructor(model, size, name) {
    Object.assign(this, { model, size, name, notes: [], input: model.inputShape });
    const [channels] = this.input;
    if (this.input.length !== 3 || ![1, 3].includes(channels)) {
      throw new NetworkError(
        `A network to try takes images of 1 or 3 channels; this one takes the shape (${this.input}).`,
      );
    }
    if (model.outputShape.length !== 1 || model.outputShape[0] < 2) {
      throw new NetworkError(
        `A network to try tells classes apart; this one gives outputs of the shape (${model.outputShape}).`,
      );
    }
    this.names = this.classes(model.about.classes, model.outputShape[0]);
    this.normalization = this.scales(model.about.normalisation, channels);
    this.draws = channels === 1;
    this.digits = String(this.input) === "1,8,8" || this.names.every((name) => /^\d$/.test(name));
    this.darkOnLight = this.normalization.mean.reduce((sum, each) => sum + each, 0) / channels > 0.5;
  }

  classes(given, count) {
    if (Array.isArray(given) && given.length === count && given.every((name) => typeof name === "string")) return given;
    this.notes.push("The file does not name its classes, so they are numbers here.");
    return Array.from({ length: count }, (_, place) => String(place));
  }

  scales(given, channels) {
    const isList = (values) => Array.isArray(values) && values.length === channels && values.every(Number.isFinite);
    const { scale, mean, std } = given ?? {};
    if (!isList(mean) || !isList(std) || !(scale > 0) || !std.every((value) => value > 0)) {
      this.notes.push("The file does not say how images are normalized: pixels go in as 0 to 1, which may be wrong.");
      return { scale: 255, mean: Array(channels).fill(0), std: Array(channels).fill(1) };
    }
    if (scale !== 1) return { scale, mean, std };
    this.notes.push(
      "The network was trained on numbers that are no pixels: pixels go in as 0 to 1, which may be wrong.",
    );
    return { scale: 255, mean, std };
  }

  // The likeliest classes with their shares.
  predict(pixels) {
    const size = this.input[1] * this.input[2];
    const { scale, mean, std } = this.normalization;
    this.given = Float32Array.from(pixels, (value, at) => {
      const channel = Math.floor(at / size);
      return (value / scale - mean[channel]) / std[channel];
    });
    const outputs = [...this.model.run(this.given)];
    if (!outputs.every(Number.isFinite))
      throw new NetworkError("The network's outputs for this image are not all finite numbers.");
    const most = Math.max(...outputs);
    const powers = this.model.endsInSoftmax ? outputs : outputs.map((value) => Math.exp(value - most));
    const sum = this.model.endsInSoftmax ? 1 : powers.reduce((all, power) => all + power, 0);
    const top = powers.map((power, place) => ({ class: this.names[place], share: power / sum }));
    return top.sort((first, second) => second.share - first.share).slice(0, SHOWN);
  }

  // Milliseconds for the last image: the median of some batches of calls.
  time() {
    const [times, began] = [[], performance.now()];
    for (let batch = 0; batch < BATCHES && performance.now() - began < 50 * BATCH; batch += 1) {
      const start = performance.now();
      let [calls, took] = [0, 0];
      do {
        this.model.run(this.given);
        calls += 1;
        took = performance.now() - start;
      } while (took < BATCH);
      times.push(took / calls);
    }
    return times.sort((first, second) => first - second)[times.length >> 1];
  }

  // The network's input as the data URL of an image.
  seen(pixels) {
    const [channels, height, width] = this.input;
    const canvas = el("canvas", { width, height });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    for (let at = 0; at < height * width; at += 1) {
      const value = (channel) => pixels[(channels === 1 ? 0 : channel) * height * width + at];
      image.data.set([value(0), value(1), value(2), 255], 4 * at);
    }
    context.putImageData(image, 0, 0);
    return canvas.toDataURL();
  }
}
