"""Networks in a browser: a runtime in JavaScript and WebAssembly, a single-file page, and an npm package."""
