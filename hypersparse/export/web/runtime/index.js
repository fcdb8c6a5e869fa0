export { FileError, NetworkError } from "./errors.js";
export { SparseModel } from "./model.js";
