"""A round of the bench "drain" in Python: asyncio's subprocesses.

benches/common/peers/foreign.rs says what it is told and what it says.
"""

import asyncio
import json
import resource
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE

KEEP = 2 << 20
READ = 64 << 10
WARM_UP = 10

# CLOCK_MONOTONIC, in nanoseconds.
now = time.monotonic_ns


class Tail:
    """The newest bytes of a stream, in a ring that is recycled."""

    rings = []

    def __init__(self):
        self.ring = Tail.rings.pop() if Tail.rings else bytearray(KEEP)
        self.at = 0
        self.total = 0

    async def fill(self, pipe):
        while chunk := await pipe.read(READ):
            self.total += len(chunk)
            first = min(len(chunk), KEEP - self.at)
            self.ring[self.at : self.at + first] = chunk[:first]
            self.ring[: len(chunk) - first] = chunk[first:]
            self.at = (self.at + len(chunk)) % KEEP


async def start(program, *args, stdin=DEVNULL):
    """A child, and what it comes to: when the status and everything was known, after the time that it has left; and its bytes."""
    child = await asyncio.create_subprocess_exec(program, *args, stdin=stdin, stdout=PIPE, stderr=PIPE)
    return child, asyncio.create_task(finish(child))


async def finish(child):
    out, err = Tail(), Tail()

    async def ended():
        await child.wait()
        return now()

    status, _, _ = await asyncio.gather(ended(), out.fill(child.stdout), err.fill(child.stderr))
    verdict = now()
    stamp = int.from_bytes(out.ring[:8], sys.byteorder) if out.total == 8 else 0
    Tail.rings += [out.ring, err.ring]
    return (status - stamp, verdict - stamp), out.total + err.total


async def run(program, role, number, count, noisy):
    for _ in range(WARM_UP):
        _, done = await start(program, "quiet", "0")
        await done
    before, cpu_before = now(), time.process_time_ns()
    # None: what this process has.
    crowd = [await start(program, "noisy", "0", stdin=None) for _ in range(noisy)]
    print("open", flush=True)
    samples, total = [], 0
    for _ in range(count):
        _, done = await start(program, role, number)
        sample, some = await done
        samples.append(sample)
        total += some
    for child, _ in crowd:
        child.kill()
    for _, done in crowd:
        total += (await done)[1]
    found = {
        "samples": samples,
        "bytes": total,
        "cpu": time.process_time_ns() - cpu_before,
        "wall": now() - before,
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: drain.py PROGRAM ROLE NUMBER COUNT NOISY")
    asyncio.run(run(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])))
