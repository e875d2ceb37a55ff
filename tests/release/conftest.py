"""The package release/ is not installed: it is run from the root of the checkout."""

import sys

from tests.paths import ROOT

sys.path.insert(0, str(ROOT))
