/** A seeded generator (sfc32) whose state is four integers, so that a snapshot can hold it. */
export class Random {
  private a = 0;
  private b = 0;
  private c = 0;
  private counter = 1;

  constructor(seed: number, stream = 0) {
    this.a = seed | 0;
    this.b = Math.floor(seed / 2 ** 32) | 0;
    this.c = stream | 0;
    for (let i = 0; i < 15; i++) this.bits();
  }

  get state(): [number, number, number, number] {
    return [this.a, this.b, this.c, this.counter];
  }

  set state([a, b, c, counter]: [number, number, number, number]) {
    this.a = a;
    this.b = b;
    this.c = c;
    this.counter = counter;
  }

  /** 32 random bits. */
  private bits(): number {
    const sum = (((this.a + this.b) | 0) + this.counter) | 0;
    this.counter = (this.counter + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = ((this.c << 21) | (this.c >>> 11)) + sum | 0;
    return sum >>> 0;
  }

  /** Uniform in [0, 1). */
  uniform(): number {
    return this.bits() / 2 ** 32;
  }

  /** Uniform in [low, high). */
  between(low: number, high: number): number {
    return low + (high - low) * this.uniform();
  }

  /** A standard Gaussian (Box–Muller). */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }

  /** A whole number in [0, n). */
  below(n: number): number {
    return Math.floor(this.uniform() * n);
  }

  /** Put an array in random order, in place. */
  shuffle<T extends { length: number; [i: number]: any }>(array: T): T {
    for (let i = array.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [array[i], array[j]] = [array[j], array[i]];
    }
    return array;
  }
}
