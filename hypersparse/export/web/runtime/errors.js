// What can be wrong with a network. Each message is one or two sentences for a person.

/** A file that is damaged, foreign or made up. */
export class FileError extends Error {
  name = "FileError";
}

/** A network that does not fit together, or that this runtime cannot run. */
export class NetworkError extends Error {
  name = "NetworkError";
}
