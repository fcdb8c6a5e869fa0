// The page's script is deflated. What it inflates to has a hash in the page's policy, so that nothing else can run.
(async () => {
  try {
    const packed = Uint8Array.from(atob(document.getElementById("packed").textContent), (one) => one.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.body.append(script);
  } catch {
    document.getElementById("main").textContent = "This page needs a browser of 2023 or later.";
  }
})();
