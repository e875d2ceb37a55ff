"""Seeds of random clusters on which the model once disagreed with kube-scheduler.

A change of the generator gives them other clusters: then look for new ones with an old model.
"""

from typing import Final

DISAGREED: Final = (
    1,
    48,
    101,
    102,
    107,
    112,
    170,
    172,
    209,
    216,
    308,
    338,
    453,
    733,
    888,
    1003,
    1022,
    1137,
    1313,
    2558,
)
