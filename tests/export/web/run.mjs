// Loads networks and runs them on images: a line of JSON for each line of standard input.

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

const { SparseModel } = await import(process.argv[2]);

for await (const line of createInterface({ input: process.stdin })) {
  const { file, images } = JSON.parse(line);
  const [began, cpu] = [performance.now(), process.cpuUsage()];
  let answer;
  try {
    const model = await SparseModel.load(new Uint8Array(await readFile(file)));
    const outputs = images ? [...model.run(Float32Array.from(images))] : [];
    const { inputShape, outputShape, products, denseProducts, layers } = model;
    answer = { outputs: outputs.map(String), inputShape, outputShape, products, denseProducts, layers };
  } catch (error) {
    answer = { error: error.name, sentence: error.message };
  }
  const { user, system } = process.cpuUsage(cpu);
  const cost = { milliseconds: performance.now() - began, cpu: (user + system) / 1e6 };
  const status = await readFile("/proc/self/status", "utf8").catch(() => ""); // maxRSS counts the parent's memory too
  const kilobytes = Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0);
  console.log(JSON.stringify({ ...answer, ...cost, kilobytes }));
}
