"""`python -m raytrain_eks.data JOB.yaml`: preparing, where no `jobs/prepare.py` is at hand."""

import sys

from raytrain_eks.data.driver import main

sys.exit(main())
