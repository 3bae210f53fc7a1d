"""Signals, ends of the process and requests that nobody waits for any more, at random moments.

    python -m fuzz.interruptions --timers 30 --interrupts 500 --exits 100 --cancels 1000

`timers`: seconds for which a handler runs every 2 ms of wall and of processor time while kernels of each kind run.
`interrupts`: signals as Ctrl-C sends them, in builds, loops and plugins; the time until KeyboardInterrupt is caught is
measured. `exits`: processes that end while other threads build, loop, run plugins or queues. `cancels`: futures of a
queue that are cancelled or no longer waited for.

A crash, a hang, a wrong answer or a late KeyboardInterrupt is a finding.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: Seconds within which KeyboardInterrupt is seen.
WITHIN = {"build": 0.5, "loop": 0.1, "scan": 0.1, "plugin": 0.1}
#: Of so many signals at random moments some come while there is work.
SOME = 20
#: A process that takes longer to end hangs.
SECONDS_TO_END = 60.0
#: What other threads do when a process ends.
EXITS = ("build", "loop", "plugin", "queue", "plugin_queue", "calls", "stuck_plugin")
_SCRIPT = Path(__file__).with_name("interruptions_child.py")


def child(job: str, *arguments: str, seconds: float = SECONDS_TO_END) -> tuple[str, dict[str, Any]]:
    """What is wrong with a child process, if anything, and what it told."""
    command = [sys.executable, str(_SCRIPT), job, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"{' '.join([job, *arguments])}: hangs for {seconds:.0f} s", {}
    if done.returncode:
        return f"{' '.join([job, *arguments])}: ended with {done.returncode}: {done.stderr[-600:]}", {}
    lines = done.stdout.splitlines()
    return "", json.loads(lines[-1]) if lines else {}


def timers(seconds: float) -> tuple[list[str], str]:
    """Findings of `seconds` under each timer, and what was run."""
    findings, summary = [], []
    kinds = ("real", "prof")
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda timer: child("timers", timer, str(seconds), seconds=seconds + 300), kinds))
    for timer, (wrong, found) in zip(kinds, ends, strict=True):
        findings += [wrong] if wrong else [f"{timer}: {name} gave something else" for name in found["wrong"]]
        summary.append(f"{timer}: {found}")
    return findings, "\n".join(summary)


def interrupts(count: int, seed: int = 0, slack: float = 0.0) -> tuple[list[str], str]:
    """Findings of so many signals, and the times until they were seen; `slack` more seconds are for a busy machine."""
    findings, summary = [], []
    for job, limit in WITHIN.items():
        share = -(-count // len(WITHIN))
        wrong, found = child("interrupts", job, str(share), str(seed), seconds=60 + 20.0 * share)
        if wrong:
            findings.append(wrong)
            continue
        late = [seconds for seconds in found["seconds"] if seconds > limit + slack]
        findings += [f"{job}: KeyboardInterrupt was seen {seconds:.3f} s late" for seconds in late]
        times = sorted(found["seconds"])
        if not times and share >= SOME:
            findings.append(f"{job}: none of {share} signals was seen while at work")
        how_soon = f", median {times[len(times) // 2]:.3f} s, most {times[-1]:.3f} s" if times else ""
        summary.append(f"{job}: {len(times)} seen while at work of {share}{how_soon}")
    return findings, "\n".join(summary)


def exits(count: int, seed: int = 0) -> tuple[list[str], str]:
    """Findings of so many processes that end, and how long that took at most."""
    findings, most = [], dict.fromkeys(EXITS, 0.0)
    jobs = [EXITS[number % len(EXITS)] for number in range(count)]

    def ended(job: str, number: int) -> tuple[str, float]:
        wrong, found = child("exits", job, str(seed + number))
        now = time.time()
        return wrong, now - found.get("left", now)

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(ended, jobs, range(count)))
    for job, (wrong, took) in zip(jobs, ends, strict=True):
        most[job] = max(most[job], took)
        findings += [wrong] if wrong else []
    return findings, "\n".join(f"{job}: ended after {seconds:.2f} s at most" for job, seconds in most.items())


def cancels(count: int, seed: int = 0) -> tuple[list[str], str]:
    """Findings of so many futures that are cancelled or left, and what became of them."""
    wrong, found = child("cancels", str(count), str(seed), seconds=60 + count)
    return ([wrong] if wrong else []), str(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.interruptions", description=__doc__)
    parser.add_argument("--timers", type=float, default=30.0, help="seconds under each timer")
    parser.add_argument("--interrupts", type=int, default=500, help="signals")
    parser.add_argument("--exits", type=int, default=100, help="processes")
    parser.add_argument("--cancels", type=int, default=1000, help="futures")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other moments")
    options = parser.parse_args()
    runs = {
        "timers": lambda: timers(options.timers),
        "interrupts": lambda: interrupts(options.interrupts, options.seed),
        "exits": lambda: exits(options.exits, options.seed),
        "cancels": lambda: cancels(options.cancels, options.seed),
    }
    findings = []
    for name, run in runs.items():
        if getattr(options, name):
            found, summary = run()
            print(f"{name}: {len(found)} findings\n{summary}", flush=True)
            findings += found
    print("\n".join(findings))
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
