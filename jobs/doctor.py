"""What `ray job submit` runs to check every node and the network among them: `python jobs/doctor.py`."""

import sys
from pathlib import Path

# `ray job submit --working-dir .` unpacks the checkout; the package beside this folder is then the one to use.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from raytrain_eks.train.doctor.driver import main

if __name__ == "__main__":
    sys.exit(main())
