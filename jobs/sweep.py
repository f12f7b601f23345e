"""What `ray job submit` runs for a sweep: `python jobs/sweep.py jobs/quickstart_sweep.yaml`."""

import sys
from pathlib import Path

# `ray job submit --working-dir .` unpacks the checkout; the package beside this folder is then the one to use.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from raytrain_eks.tune.driver import main

if __name__ == "__main__":
    sys.exit(main())
