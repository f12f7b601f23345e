"""Stands for `jobs/train.py` where a test is about submission: behaves as the job's environment says."""

import os
import signal
import sys
import time
from pathlib import Path


def stop(*_: object) -> None:
    print("asked to stop: saving a last checkpoint", flush=True)
    time.sleep(float(os.environ.get("SAVING", "0.5")))
    print("saved", flush=True)
    sys.exit(0)


def main() -> int:
    signal.signal(signal.SIGTERM, stop)
    print(f"arguments {sys.argv[1:]!r}", flush=True)
    print(
        f"working in {os.getcwd()!r}, nice {os.nice(0)}, texts {sorted(map(str, Path('texts').glob('*')))}", flush=True
    )
    for line in range(int(os.environ.get("LINES", "0"))):
        print(f"line {line}")
    steps = int(os.environ.get("STEPS", "3"))
    for step in range(1, steps + 1):
        print(f"step {step}/{steps}  loss {9 - step / 10:.4f}  lr 2.9e-03  4096 tok/s  eta {steps - step}s", flush=True)
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.05")))
    if "DIE" in os.environ:
        os.kill(os.getpid(), int(os.environ["DIE"]))
        time.sleep(10)
    print("an error on stderr", file=sys.stderr)
    print("no end of line", end="", flush=True)
    return int(os.environ.get("CODE", "0"))


if __name__ == "__main__":
    sys.exit(main())
