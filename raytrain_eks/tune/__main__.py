"""`python -m raytrain_eks.tune SWEEP.yaml`: the driver, where no `jobs/sweep.py` is at hand."""

import sys

from raytrain_eks.tune.driver import main

sys.exit(main())
