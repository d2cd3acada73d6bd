#!/usr/bin/env python3
"""Compares gateways (gateways.toml) in front of the same stub replicas; see README.md.

Each round takes every gateway once, in a rotated order, starting it anew: CPU time of its whole process tree a request
and a streamed token, most requests a second, added latency (a direct load runs beside it in the same seconds), memory
and errors.  --behaviours runs the failure cases instead."""
import argparse
import asyncio
import ctypes
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import time
import tomllib
import urllib.request

import psutil

import load

KIT = pathlib.Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
OURS = set()                                        # pids of the stub and of load generators: not the gateway's
PEERS = pathlib.Path(os.environ.get("BENCH_PEERS", "~/.cache/elasticd-bench")).expanduser()   # peers/install.sh
BASE = int(os.environ.get("BENCH_PORT", 18100))     # control port; replicas follow it, the gateway is at +100
CONTROL, FIRST, GATE = BASE, BASE + 1, BASE + 100

# name: (stub settings, load arguments, seconds after which the load generator is given up)
WORKLOADS = {
    "short": ({}, "--duration 2 --concurrency 32 --tokens 1 --chat", 60),
    "latency": ({}, "--duration 4 --rate 50 --tokens 1 --chat", 60),
    "stream64": ({"itl_ms": 10}, "--requests 128 --duration 20 --concurrency 64 --tokens 128 --chat --stream", 90),
    "slow500": ({"itl_ms": 50}, "--requests 500 --duration 20 --concurrency 500 --ramp 1 --tokens 60 --chat --stream", 120),
    "flood": ({"itl_ms": 0}, "--duration 2 --concurrency 64 --tokens 128 --chat --stream", 90),
    "multiturn": ({"itl_ms": 5, "prefill_us": 20, "kv_blocks": 900},
                  "--duration 6 --concurrency 32 --ramp 0.5 --turns 6 --groups 8 --system-chars 4000 --prompt-chars 400 --tokens 16 "
                  "--think 0.1 --chat --stream", 60),
}


def http(url, body=None, timeout=5, headers=()):
    req = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None,
                                 dict([("Content-Type", "application/json"), *headers]))
    with urllib.request.urlopen(req, timeout=timeout) as r:
        return r.status, r.read()


def stub(**k):
    return json.loads(http(f"http://127.0.0.1:{CONTROL}/_stub", k)[1])


class Gateway:
    """One gateway as configured: started, measured over its whole process tree, stopped."""
    def __init__(self, spec, replicas):
        self.spec, self.name, self.port = spec, spec["name"], GATE
        self.url = f"http://127.0.0.1:{GATE}"
        self.ports = range(FIRST, FIRST + replicas)
        self.proc = None
        self.headers = spec.get("headers", [])

    def fill(self, s):
        each = "\n".join(self.spec.get("each", "").replace("@rport@", str(p)) for p in self.ports)
        urls = [f"http://127.0.0.1:{p}" for p in self.ports]
        for k, v in dict(each=each, urls=" ".join(urls), urls_csv=",".join(urls), port=self.port, dir=self.dir, kit=KIT,
                         python=sys.executable, peers=PEERS).items():
            s = s.replace(f"@{k}@", str(v))
        return s

    def start(self, logs):
        self.dir = logs / self.name
        self.dir.mkdir(parents=True, exist_ok=True)
        for name, text in self.spec.get("files", {}).items():
            (self.dir / name).write_text(self.fill(text))
        env = dict(os.environ, **{k: self.fill(v) for k, v in self.spec.get("env", {}).items()})
        if "@python@" not in self.spec["cmd"]:          # what others install must not find our modules
            env.pop("PYTHONPATH", None)
        t = time.monotonic()
        self.proc = subprocess.Popen(shlex.split(self.fill(self.spec["cmd"])), env=env, cwd=self.dir, stdin=subprocess.DEVNULL,
                                     stdout=open(self.dir / "log", "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        while time.monotonic() - t < self.spec.get("start_s", 90):
            try:
                body = {"model": "stub", "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1}
                if http(self.url + "/v1/chat/completions", body, headers=[h.split(": ") for h in self.headers])[0] == 200:
                    return round(time.monotonic() - t, 2)
            except OSError:
                pass
            if self.proc.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} did not start; see {self.dir}/log")

    def tree(self):
        """Its processes.  Daemons that left the tree become ours (main() makes this process their reaper)."""
        me, out = psutil.Process(), {}
        for p in me.children():
            if p.pid not in OURS:
                try:
                    out.update((x.pid, x) for x in (p, *p.children(recursive=True)) if x.status() != psutil.STATUS_ZOMBIE)
                except psutil.Error:
                    pass
        return out.values()

    def cpu(self):
        return sum(cpu_of(p.pid) for p in self.tree())

    def memory(self):
        rss = pss = 0
        for p in self.tree():
            try:
                m = p.memory_full_info()
                rss, pss = rss + m.rss, pss + m.pss
            except psutil.Error:
                pass
        return dict(rss_mb=rss >> 20, pss_mb=pss >> 20, processes=len(self.tree()))

    def stop(self):
        procs = list(self.tree())
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for p in procs:
                try:
                    p.send_signal(sig)
                except psutil.Error:
                    pass
            _, procs = psutil.wait_procs(procs, timeout=5)
            procs = [*procs, *self.tree()]
            if not procs:
                break
        self.proc.wait()


def cpu_of(pid):
    """CPU seconds of a process and of its children that have ended."""
    try:
        f = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, f[11:15])) / TICK
    except OSError:
        return 0.0


def busy():
    f = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    return (sum(f) - f[3] - f[4]) / TICK


def start_load(url, args, headers=()):
    cmd = [sys.executable, str(KIT / "load.py"), url, *shlex.split(args)]
    for h in headers:
        cmd += ["--header", h]
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, cwd=KIT)
    OURS.add(p.pid)
    return p


def finish(p, timeout):
    try:
        return json.loads(p.communicate(timeout=timeout)[0])
    except (subprocess.TimeoutExpired, ValueError):
        p.kill()
        p.wait()
        return None


def measure(name, gw, stub_pid, seed):
    """One workload through one gateway (None: straight to the first replica)."""
    settings, args, limit = WORKLOADS[name]
    args += f" --seed {seed}"
    url = gw.url if gw else f"http://127.0.0.1:{FIRST}"
    head = gw.headers if gw else ()
    stub(reset=True, set=settings)
    finish(start_load(url, args + " --duration 0.5 --requests 40 --concurrency 8 --seed 99 --turns 0 --tokens 2", head), 30)  # warm-up
    if name == "multiturn":
        stub(reset=True, set=settings)
    c0, b0, s0, t0 = gw.cpu() if gw else 0, busy(), cpu_of(stub_pid), time.monotonic()
    side = start_load(f"http://127.0.0.1:{FIRST}", args + " --seed 7") if name == "latency" and gw else None
    r = finish(start_load(url, args, head), limit)
    direct = finish(side, limit) if side else None
    if r is None:
        return None
    wall = time.monotonic() - t0
    r["gw_cpu_s"] = round((gw.cpu() if gw else 0) - c0, 3)
    r["stub_cpu_s"] = round(cpu_of(stub_pid) - s0, 3)
    r["other_cpu_share"] = round((busy() - b0 - r["gw_cpu_s"] - r["stub_cpu_s"] - r["client_cpu_s"]) / wall, 3)
    r["span_s"] = round(wall, 2)
    if direct:
        r["direct"] = direct["svc_ms"]
    st = [x["counts"] for x in stub()]
    r["per_replica"] = [x["requests"] for x in st]
    r["hit_rate"] = round(sum(x["hit_tokens"] for x in st) / max(1, sum(x["query_tokens"] for x in st)), 4)
    if gw:
        r.update(gw.memory())
    return r


def bench(a, gateways, stub_pid, out):
    for rnd in range(a.rounds):
        order = [None] + gateways[rnd % len(gateways):] + gateways[:rnd % len(gateways)]
        for gw in order:
            row = dict(round=rnd, gateway=gw.name if gw else "direct", t=time.time(), load=os.getloadavg()[0], w={})
            try:
                if gw:
                    stub(reset=True)
                    row["start_s"] = gw.start(out.parent / "logs")
                    time.sleep(gw.spec.get("settle_s", 1))
                    c, t = gw.cpu(), time.monotonic()
                    time.sleep(2)
                    row["idle_cpu_share"] = round((gw.cpu() - c) / (time.monotonic() - t), 4)
                for w in a.workloads.split(","):
                    if not gw or w in gw.spec.get("workloads", list(WORKLOADS)):
                        row["w"][w] = measure(w, gw, stub_pid, a.seed)
            except Exception as e:
                row["error"] = repr(e)
            finally:
                if gw and gw.proc:
                    gw.stop()
            with open(out, "a") as f:
                f.write(json.dumps(row) + "\n")
            brief = {w: (r["ok"], r["errors"], r["rps"], r["gw_cpu_s"]) if r else None for w, r in row["w"].items()}
            print(rnd, row["gateway"], row.get("error", ""), brief, flush=True)


# ---- failure behaviour ----

async def one(gw, **k):
    a = load.parser().parse_args([gw.url, "--timeout", str(k.pop("timeout", 15))])
    a.header, a.stream, a.chat, a.tokens = gw.headers, k.get("stream", False), True, k.get("tokens", 1)
    cl = load.Client(a)
    rec = await cl.do({"messages": [{"role": "user", "content": f"q {time.monotonic_ns()}"}], "tokens": a.tokens})
    while cl.free:
        cl.free.pop().tr.close()
    rec["ms"] = round((rec["t_end"] - rec["t0"]) * 1e3, 1)
    return rec


async def burst(gw, n):
    return await asyncio.gather(*(one(gw, timeout=5) for _ in range(n)))


def several(gw, n, **k):
    recs = [asyncio.run(one(gw, **k)) for _ in range(n)]
    errs = [r["err"] for r in recs if r["err"]]
    return dict(ok=n - len(errs), of=n, errors={e: errs.count(e) for e in set(errs)}, max_ms=max(r["ms"] for r in recs),
                faults_met=sum(x["counts"]["faults"] for x in stub()))


async def leave(gw):
    """Reads the start of a stream, then closes; returns how long the engine took to see that."""
    body = json.dumps({"model": "stub", "messages": [{"role": "user", "content": "bye"}], "max_tokens": 2000, "stream": True}).encode()
    r, w = await asyncio.open_connection("127.0.0.1", gw.port)
    w.write((f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             f"{''.join(h + chr(13) + chr(10) for h in gw.headers)}Content-Length: {len(body)}\r\n\r\n").encode() + body)
    got = b""
    while got.count(b"data: ") < 6:
        got += await asyncio.wait_for(r.read(65536), 10)
    t = time.time()
    w.close()
    while time.time() - t < 8:
        gone = [c for x in stub() for c in x["closed"]]
        if gone:
            return round((gone[-1]["t"] - t) * 1e3, 1)
        await asyncio.sleep(0.01)
    return None


def behave(gw, replicas, out):
    def settle():
        """Waits until every replica serves again; returns the seconds until the first good answer, and until the last."""
        stub(reset=True, down=False, set={"ttft_ms": 20})
        t, first = time.monotonic(), None
        while time.monotonic() - t < 100:
            good = [not r["err"] for r in asyncio.run(burst(gw, 4 * replicas))]     # at once, so that least-load spreads them
            if first is None and any(good):
                first = round(time.monotonic() - t, 2)
            if all(good) and all(x["counts"]["done"] for x in stub()):
                break
            time.sleep(0.25)
        last = round(time.monotonic() - t, 2)
        stub(reset=True)
        return first, last
    settle()
    stub(set={"fault": "rst", "fault_after": 5, "itl_ms": 20})
    r = asyncio.run(one(gw, stream=True, tokens=50))
    out["rst_mid_stream"] = {k: r.get(k) for k in ("status", "err", "n", "ms", "tail")}
    out["back_after_rst_s"] = settle()
    stub(set={"itl_ms": 20})
    stub(port=FIRST, set={"fault": "rst", "fault_after": 5})
    out["one_of_n_rst_mid_stream"] = several(gw, 4, stream=True, tokens=50)
    settle()
    stub(set={"itl_ms": 20})
    out["client_leaves_ms"] = asyncio.run(leave(gw))
    settle()
    for name, how in (("rst_before_first_byte", {"set": {"fault": "rst"}}), ("503", {"set": {"fault": "503"}}), ("refused", {"down": True})):
        stub(port=FIRST, **how)
        out["one_of_n_" + name] = several(gw, 20)
        settle()
    stub(down=True)
    for stream in (False, True):
        r = asyncio.run(one(gw, timeout=40, stream=stream))
        out["all_down" + "_stream" * stream] = {k: r.get(k) for k in ("status", "err", "ms", "tail")}
    out["back_after_all_down_s"] = settle()


# ---- summary ----

def med(xs):
    xs = [x for x in xs if x is not None]
    return (statistics.median(xs), min(xs), max(xs)) if xs else None


def summary(path):
    """Medians [min–max] over rounds, as Markdown."""
    rows = [json.loads(x) for x in open(path)]
    names = list(dict.fromkeys(r["gateway"] for r in rows))
    fmt = lambda m, d=0: "–" if m is None else f"{m[0]:.{d}f} [{m[1]:.{d}f}–{m[2]:.{d}f}]"

    def get(n, w, f):
        return med([f(r["w"][w], r) for r in rows if r["gateway"] == n and r["w"].get(w) and r["w"][w]["ok"]])

    def cpu(per):
        return lambda x, r: (x["gw_cpu_s"] - r.get("idle_cpu_share", 0) * x["span_s"]) / x[per] * 1e6

    def added(q):
        return lambda x, r: x["svc_ms"][q] - x["direct"][q] if x.get("direct") else None
    cols = [("CPU µs/req", "short", cpu("ok"), 0), ("max req/s", "short", lambda x, r: x["rps"], 0),
            ("CPU µs/token, 64 streams", "stream64", cpu("tokens"), 1), ("CPU µs/token, 500 slow", "slow500", cpu("tokens"), 1),
            ("gap p99 ms, 500 slow", "slow500", lambda x, r: x["gap_ms"]["p99"], 0), ("max tok/s", "flood", lambda x, r: x["tok_s"], 0),
            ("added p50 ms", "latency", added("p50"), 2), ("added p99 ms", "latency", added("p99"), 1),
            ("prefix hit %", "multiturn", lambda x, r: x["hit_rate"] * 100, 0),
            ("TTFT mean ms", "multiturn", lambda x, r: x["ttft_ms"]["mean"], 0), ("TTFT p99 ms", "multiturn", lambda x, r: x["ttft_ms"]["p99"], 0),
            ("PSS MB", "slow500", lambda x, r: x.get("pss_mb"), 0)]
    print("| gateway | " + " | ".join(c[0] for c in cols) + " | idle CPU % | errors |\n|" + "---|" * (len(cols) + 3))
    for n in names:
        errs = {}
        for r in rows:
            for w, x in r["w"].items():
                for e, k in ((x or {"errors": {"gave up": 1}})["errors"].items() if r["gateway"] == n else ()):
                    errs[f"{w}:{e}"] = errs.get(f"{w}:{e}", 0) + k
        idle = med([r.get("idle_cpu_share", 0) * 100 for r in rows if r["gateway"] == n])
        print(f"| {n} | " + " | ".join(fmt(get(n, w, f), d) for _, w, f, d in cols) + f" | {fmt(idle, 1)} | {errs or 0} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("config", help="gateways.toml, or with --summary a results.jsonl")
    ap.add_argument("--out", default="results.jsonl")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seed", type=int, default=1, help="of the load")
    ap.add_argument("--replicas", type=int, default=4)
    ap.add_argument("--only", default="", help="gateway names, comma-separated")
    ap.add_argument("--workloads", default=",".join(WORKLOADS))
    ap.add_argument("--behaviours", action="store_true")
    ap.add_argument("--summary", action="store_true")
    a = ap.parse_args()
    if a.summary:
        return summary(a.config)
    specs = tomllib.load(open(a.config, "rb"))["gateway"]
    gateways = [Gateway(s, a.replicas) for s in specs if not a.only or s["name"] in a.only.split(",")]
    out = pathlib.Path(a.out).resolve()
    ctypes.CDLL(None).prctl(36, 1)                      # PR_SET_CHILD_SUBREAPER
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    engine = subprocess.Popen([sys.executable, str(KIT / "stub_engine.py"), "--ports", f"{FIRST}-{FIRST + a.replicas - 1}",
                               "--control", str(CONTROL)])
    OURS.add(engine.pid)
    time.sleep(1)
    try:
        if not a.behaviours:
            return bench(a, gateways, engine.pid, out)
        for gw in gateways:
            row = dict(gateway=gw.name)
            try:
                stub(reset=True, down=False)
                gw.start(out.parent / "logs")
                time.sleep(gw.spec.get("settle_s", 1))
                behave(gw, a.replicas, row)
            except Exception as e:
                row["error"] = repr(e)
            finally:
                gw.stop() if gw.proc else None
                with open(out, "a") as f:
                    f.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    finally:
        engine.terminate()
        engine.wait()


if __name__ == "__main__":
    main()
