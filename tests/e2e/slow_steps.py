"""A scheduler of vLLM whose steps take longer, as those of a big model do.

The tiny model has answered before anything can be struck. Stopping its processes again and again
does not slow them down on a busy machine: whoever stops them comes too late. So the engine waits by
itself, once in each step, for as long as the file of its replica in `FOLDER` says just then.
Imported by engines only; who writes the files is `storm_brakes`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

FOLDER = "SLOW_STEPS"


class SlowScheduler(AsyncScheduler):
    """That of vLLM, but slow; how long a step takes is looked up anew each time."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        planned = super().schedule(*args, **kwargs)
        if planned.total_num_scheduled_tokens:
            time.sleep(_seconds())
        return planned


def _seconds() -> float:
    replica_id = str(json.loads(os.environ["ELASTICD_REPLICA"])[0])
    with contextlib.suppress(FileNotFoundError):
        return float(Path(os.environ[FOLDER], replica_id).read_text(encoding="utf-8"))
    return 0.0
