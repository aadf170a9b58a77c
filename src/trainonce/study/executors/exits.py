"""What the exit code of a process says."""

from __future__ import annotations

import signal


def describe_exit(code: int | None) -> str:
    """A sentence about a trial's process that ended with this exit code."""
    reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
    hint = " Was memory short?" if code == -signal.SIGKILL else ""
    return f"The trial's process died ({reason}).{hint}"
