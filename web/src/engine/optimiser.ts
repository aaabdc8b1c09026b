/** Gradient steps on a flat array of parameters, as torch.optim takes them. */
export type Method = "sgd" | "momentum" | "adam";

const MOMENTUM = 0.9;
const [BETA1, BETA2, EPSILON] = [0.9, 0.999, 1e-8];

export class Optimiser {
  /** Running means; empty for plain gradient descent. */
  first: Float64Array;
  second: Float64Array;
  steps = 0;
  readonly method: Method;

  constructor(method: Method, size: number) {
    this.method = method;
    this.first = new Float64Array(method === "sgd" ? 0 : size);
    this.second = new Float64Array(method === "adam" ? size : 0);
  }

  /** Move the parameters from `start` up to `end`; the others do not move by a bit. */
  step(parameters: Float64Array, gradient: Float64Array, rate: number, start: number, end: number): void {
    const { first, second } = this;
    if (this.method === "sgd") {
      for (let i = start; i < end; i++) parameters[i] -= rate * gradient[i];
    } else if (this.method === "momentum") {
      for (let i = start; i < end; i++) {
        first[i] = MOMENTUM * first[i] + gradient[i];
        parameters[i] -= rate * first[i];
      }
    } else {
      const [unbias1, unbias2] = [1 - BETA1 ** this.steps, Math.sqrt(1 - BETA2 ** this.steps)];
      for (let i = start; i < end; i++) {
        first[i] = BETA1 * first[i] + (1 - BETA1) * gradient[i];
        second[i] = BETA2 * second[i] + (1 - BETA2) * gradient[i] * gradient[i];
        parameters[i] -= ((rate / unbias1) * first[i]) / (Math.sqrt(second[i]) / unbias2 + EPSILON);
      }
    }
  }
}
