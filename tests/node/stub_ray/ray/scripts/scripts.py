"""Plays `ray start`: says what it got, has a child in its own session, stays or fails."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

folder = pathlib.Path(os.environ["STUB_RAY_DIR"])
with (folder / "calls").open("a") as calls:
    env = {
        name: value
        for name, value in os.environ.items()
        if any(x in name for x in ("RAY", "ELASTICD", "VISIBLE"))
    }
    calls.write(json.dumps({"argv": sys.argv[1:], "env": env}) + "\n")
manner = (folder / "manner").read_text() if (folder / "manner").exists() else "up"
if manner == "fails" or (
    manner == "fails once" and len((folder / "calls").read_text().splitlines()) == 1
):
    print("timed out during startup", flush=True)
    sys.exit(1)
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
(folder / "child").write_text(f"{child.pid}\n")
(folder / "ray").write_text(f"{os.getpid()}\n")
if manner == "has a raylet":
    name = ["raylet", "-c", "import time; print('here', flush=True); time.sleep(600)"]
    raylet = subprocess.Popen(name, executable=sys.executable, stdout=subprocess.PIPE)
    raylet.stdout.readline()
    (folder / "raylet").write_text(f"{raylet.pid}\n")
print("Ray runtime started.", flush=True)
if manner == "dies":
    sys.exit(3)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(600)
