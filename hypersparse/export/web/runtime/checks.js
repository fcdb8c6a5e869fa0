// Checks of operations and networks.

import { NetworkError } from "./errors.js";

export const product = (sides) => sides.reduce((all, side) => all * side, 1);

/** Throw a sentence about a node's value unless the condition holds. */
export function need(condition, node, what, came) {
  if (!condition) throw new NetworkError(`\`${node.output}\` (${node.op}) has ${what}: ${String(came).slice(0, 200)}.`);
}

/** A bound on the work of preparing a network: a small file could ask for hours. */
export class WorkBudget {
  constructor(most) {
    this.left = most;
  }

  spend(count) {
    this.left -= count;
    if (this.left < 0)
      throw new NetworkError("Preparing the network would take too long; its operations repeat too much.");
  }
}
