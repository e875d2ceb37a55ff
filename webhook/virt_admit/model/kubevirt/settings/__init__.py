"""Settings of KubeVirt, HyperConverged and CDI: releases, feature gates, limits of migrations."""
