/** A file that is damaged, foreign or made up. */
export class FileError extends Error {}

/** A network that does not fit together, or that this runtime cannot run. */
export class NetworkError extends Error {}

/** A layer with weights. Products are multiplications for one image. */
export interface Layer {
  name: string;
  shape: number[];
  /** Weights that are not zero. */
  kept: number;
  total: number;
  products: number;
  /** If no weight were zero. */
  denseProducts: number;
}

/** A network that predicts in WebAssembly, with its nonzero weights only. */
export class SparseModel {
  private constructor();

  /** The network in the bytes of a `.hsp` file, or in the file at an address, which is fetched. */
  static load(source: Uint8Array | ArrayBuffer | string | URL): Promise<SparseModel>;

  /** Channels, height and width; or the shape of another input. */
  readonly inputShape: number[];
  readonly outputShape: number[];
  /** What the file says: `classes`, `normalisation` and the like. */
  readonly about: Record<string, unknown>;
  readonly layers: Layer[];
  /** Multiplications for one image. */
  readonly products: number;
  readonly denseProducts: number;
  readonly endsInSoftmax: boolean;

  /** Outputs for one image or several, one after another; images are normalized as in training, tokens are numbers. */
  run(images: Float32Array): Float32Array;

  /** Milliseconds of each step of the last image, by the name of its layer. */
  profile(clock?: () => number): { name: string; milliseconds: number }[];
}
