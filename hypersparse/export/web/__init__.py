"""Networks in a browser: the runtime in JavaScript and WebAssembly, a page of one file, and a package for npm."""
