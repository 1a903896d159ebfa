"""Replay of recorded APIs: every call of a dump on a device and, in higher precision, on the CPU.

Started by the command line (`msprobe acc_check`, `msprobe -f pytorch run_ut` and their multi forms). Importing this
package does not import torch; its modules do.
"""

from __future__ import annotations
