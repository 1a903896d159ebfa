"""Find the operator that makes a model's numbers differ between devices, versions and precisions."""

from __future__ import annotations
