"""`python -m raytrain_eks.train JOB.yaml`: the driver, where no `jobs/train.py` is at hand."""

import sys

from raytrain_eks.train.driver import main

sys.exit(main())
