"""All cases by name."""

from __future__ import annotations

from blind import BLIND
from clean import CLEAN
from fresh import FRESH
from inject import KINDS, ROUNDINGS, Case
from models import NETS
from outside import OUTSIDE, OUTSIDE_CLEAN
from second import SECOND, SECOND_CLEAN
from tuned import TUNED
from tuned_more import MORE

SPLITS = {
    "tuned": TUNED,
    "more": MORE,
    "blind": BLIND,
    "fresh": FRESH,
    "clean": CLEAN,
    "outside": OUTSIDE,
    "outside-clean": OUTSIDE_CLEAN,
    "second": SECOND,
    "second-clean": SECOND_CLEAN,
}


def find(name: str) -> Case:
    """The case of this name."""
    for cases in SPLITS.values():
        for case in cases:
            if case.name == name:
                return case
    raise KeyError(name)


def complaints() -> list[str]:
    """What is wrong with the corpus itself; empty when nothing is."""
    every = [case for cases in SPLITS.values() for case in cases]
    found = [f"{case.name} is there twice" for i, case in enumerate(every) if case.name in {c.name for c in every[:i]}]
    for case in every:
        if case.net not in NETS or case.rounding not in ROUNDINGS or not case.kinds <= set(KINDS):
            found.append(f"{case.name}: unknown net, rounding or kind")
        if not case.clean and (not case.kinds or case.group not in "abcde" or not case.group):
            found.append(f"{case.name}: a fault needs kinds and a group")
    return found
