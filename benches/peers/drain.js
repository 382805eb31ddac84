// A round of the bench "drain" in Node: child_process.spawn. benches/common/peers/foreign.rs says what it is told and what it says.
'use strict';

const { spawn } = require('node:child_process');

const KEEP = 2 << 20;
const WARM_UP = 10;

// CLOCK_MONOTONIC, in nanoseconds.
const now = () => process.hrtime.bigint();

// The newest bytes of a stream, in a ring that is recycled.
const rings = [];
class Tail {
  constructor() {
    this.ring = rings.pop() ?? Buffer.allocUnsafe(KEEP);
    this.at = 0;
    this.total = 0;
  }

  take(chunk) {
    this.total += chunk.length;
    for (let from = 0; from < chunk.length;) {
      const size = Math.min(chunk.length - from, KEEP - this.at);
      chunk.copy(this.ring, this.at, from, from + size);
      this.at = (this.at + size) % KEEP;
      from += size;
    }
  }

  free() {
    rings.push(this.ring);
  }
}

// Starts a child. `done` comes to when the status and everything was known, after the time that the child has left; and its bytes.
function start(program, args, stdin) {
  const child = spawn(program, args, { stdio: [stdin, 'pipe', 'pipe'] });
  const tails = [child.stdout, child.stderr].map((pipe) => {
    const tail = new Tail();
    pipe.on('data', (chunk) => tail.take(chunk));
    return tail;
  });
  let status = 0n;
  child.on('exit', () => { status = now(); });
  const done = new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', () => {
      const verdict = now();
      const stamp = tails[0].total === 8 ? tails[0].ring.readBigUInt64LE(0) : 0n;
      const bytes = tails[0].total + tails[1].total;
      tails.forEach((tail) => tail.free());
      resolve({ sample: [Number(status - stamp), Number(verdict - stamp)], bytes });
    });
  });
  return { child, done };
}

async function run([program, role, number, count, noisy]) {
  for (let i = 0; i < WARM_UP; i++) await start(program, ['quiet', '0'], 'ignore').done;
  const [before, cpuBefore] = [now(), process.cpuUsage()];
  const crowd = [];
  for (let i = 0; i < noisy; i++) crowd.push(start(program, ['noisy', '0'], 'inherit'));
  process.stdout.write('open\n');
  const samples = [];
  let bytes = 0;
  for (let i = 0; i < count; i++) {
    const one = await start(program, [role, number], 'ignore').done;
    samples.push(one.sample);
    bytes += one.bytes;
  }
  for (const one of crowd) one.child.kill('SIGKILL');
  for (const one of crowd) bytes += (await one.done).bytes;
  const cpu = process.cpuUsage(cpuBefore);
  const found = {
    samples,
    bytes,
    cpu: (cpu.user + cpu.system) * 1000,
    wall: Number(now() - before),
    resident: process.resourceUsage().maxRSS * 1024,
  };
  process.stdout.write(`${JSON.stringify(found)}\n`);
}

const args = process.argv.slice(2);
if (args.length !== 5) {
  console.error('usage: drain.js PROGRAM ROLE NUMBER COUNT NOISY');
  process.exit(2);
}
run([...args.slice(0, 3), Number(args[3]), Number(args[4])]).catch((error) => {
  console.error(error);
  process.exit(1);
});
