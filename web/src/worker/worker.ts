/** Trains while it listens; answers with the newest frame whenever the page has drawn the one before. */
import { Lab } from "./lab.ts";
import type { Frame, KernelName, Request } from "./protocol.ts";

const SLICE = 14; // milliseconds of work between looks at the mailbox

const KERNEL_EVERY = 200; // milliseconds between kernels while training; their spectra cost more than regions

let lab: Lab | null = null;
let start = 0;
let playing = false;
let until = Infinity;
let perSecond = Infinity;
let kernel: KernelName | null = null;
let pageIsReady = true;
let isNew = true;
let due = 0; // steps that the speed allows by now
let lastTick = 0;
let isTicking = false;
let lastKernel = -Infinity;
let pageHasPicture = false;

const mailbox = new MessageChannel();
mailbox.port1.onmessage = tick;

function schedule(): void {
  if (isTicking) return;
  isTicking = true;
  if (perSecond > 500 || !playing) mailbox.port2.postMessage(null);
  else setTimeout(tick, 4);
}

function tick(): void {
  isTicking = false;
  if (!lab) return;
  if (playing) train(lab);
  if (pageIsReady && isNew) send(lab);
  if (playing) schedule();
}

function train(current: Lab): void {
  const now = performance.now();
  due = Math.min(due + ((now - lastTick) / 1000) * perSecond, Math.max(1, perSecond / 20));
  lastTick = now;
  while (due >= 1 && current.step < until && performance.now() - now < SLICE) {
    current.once();
    due--;
    isNew = true;
    if (current.diverged) break;
  }
  if (current.diverged || current.step >= until) playing = false;
}

function send(current: Lab): void {
  const now = performance.now();
  const wanted = now - lastKernel > KERNEL_EVERY ? kernel : null;
  if (wanted) lastKernel = now;
  else if (kernel && !playing) setTimeout(askAgain, KERNEL_EVERY); // a still picture gets its kernel a moment later
  const frame: Frame = current.frame(start, playing, wanted);
  pageIsReady = false;
  isNew = false;
  postMessage(frame);
}

function askAgain(): void {
  isNew = true;
  schedule();
}

function play(on: boolean, to = Infinity): void {
  playing = on;
  until = to;
  lastTick = performance.now();
  due = Math.min(1, perSecond);
}

function answer(request: Request): void {
  if (request.type === "drawn") {
    pageIsReady = pageHasPicture = true;
    return;
  }
  isNew = true;
  if (request.type === "start") {
    lab = new Lab(request.config, request.events);
    start = request.start;
    lab.advance(request.step);
    lastKernel = performance.now(); // the first picture does not wait for it
    play(request.playing);
  } else if (request.type === "speed") perSecond = request.perSecond;
  else if (request.type === "kernel") {
    kernel = request.name;
    if (pageHasPicture) lastKernel = -Infinity;
  } else if (request.type === "play") play(request.on, request.until);
  else if (lab && request.type === "advance") {
    play(false);
    lab.advance(lab.step + request.steps);
  } else if (lab && request.type === "seek") {
    play(false);
    lab.seek(request.step);
  } else if (lab && request.type === "act") lab.act(request.event);
}

onmessage = ({ data }: MessageEvent<Request>) => {
  answer(data);
  schedule();
};
