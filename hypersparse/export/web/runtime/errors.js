// Errors. Each message is one or two sentences.

/** A damaged, foreign or forged file. */
export class FileError extends Error {
  name = "FileError";
}

/** An inconsistent network, or one that this runtime cannot run. */
export class NetworkError extends Error {
  name = "NetworkError";
}
