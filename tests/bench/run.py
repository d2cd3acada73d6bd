#!/usr/bin/env python3
"""`make bench`: elasticd's gateway beside vllm-router and Python stand-ins.

All of them are in front of the same stub replicas. Runs the kit (README.md) for a few minutes and
writes build/reports/bench.json: medians over the rounds, and ratios within the same run, which is
all that may be compared. Exits 1 when an answer was wrong, too little was measured, or a bound
(`RATIOS`, `MOST`) is not kept. Without vllm-router (peers/install.sh brings it) the ratios to it
are not measured, and that is said. The last line sums up.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent
PEERS = Path(os.environ.get("BENCH_PEERS", "~/.cache/elasticd-bench")).expanduser()
OURS, ROUTER, STAND_INS = "elasticd", "vllm-router", ("py-relay", "py-aiohttp")
FIGURES = {  # name: (workload, its unit, the fewest units that count as a measurement)
    "cpu_us_per_request": ("short", "ok", 500),
    "cpu_us_per_token": ("stream64", "tokens", 10_000),
    "cpu_us_per_slow_token": ("slow500", "tokens", 20_000),
}
RATIOS = {"cpu_us_per_request": 1.5, "cpu_us_per_token": 1.0, "cpu_us_per_slow_token": 1.0}
"""To vllm-router's, at most: with everything on, streams that go on elsewhere included."""
MOST = {"added_p50_ms": 0.8, "pss_mb_500_streams": 60}
"""Of ours; a latency is a difference within the same seconds."""


def run(rounds: int, seed: int, results: Path) -> list[dict]:
    """All rounds of the kit; one row per gateway and round."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    command = [sys.executable, KIT / "compare.py", KIT / "gateways.toml", "--out", results]
    command += ["--rounds", str(rounds), "--seed", str(seed)]
    command += ["--only", ",".join(others((OURS,)))]
    command += ["--workloads", "short,latency,stream64,slow500"]
    subprocess.run(command, check=True)
    return [json.loads(line) for line in results.read_text().splitlines()]


def others(first: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Whom we are compared with, as far as they are here."""
    router = (ROUTER,) if (PEERS / ROUTER).is_dir() else ()
    return (*first, *router, *STAND_INS)


def cost(row: dict, workload: str, unit: str) -> float | None:
    """CPU microseconds of the gateway's process tree per unit, its idle rate taken off."""
    done = row["w"].get(workload)
    if not done or not done[unit]:
        return None
    return (done["gw_cpu_s"] - row.get("idle_cpu_share", 0) * done["span_s"]) / done[unit] * 1e6


def summarise(rows: list[dict]) -> dict:
    """Figures and counts of each gateway, our ratios, and what was wrong."""
    gateways = {name: {} for name in others(("direct", OURS))}
    problems = []
    for name, entry in gateways.items():
        mine = [row for row in rows if row["gateway"] == name]
        entry["rounds"] = len(mine)
        for figure, (workload, unit, fewest) in FIGURES.items():
            done = [row["w"][workload] for row in mine if row["w"].get(workload)]
            entry[workload] = [
                {"units": w[unit], "errors": w["errors"], "rps": w["rps"]} for w in done
            ]
            values = [c for row in mine if (c := cost(row, workload, unit)) is not None]
            entry[figure] = round(statistics.median(values), 1) if values else None
            wrong = any(w["errors"] or w[unit] < fewest for w in done)
            if wrong or not done or len(done) < len(mine):
                faults = [row["error"] for row in mine if "error" in row]
                problems.append(f"{name}, {workload}: {entry[workload]} {faults}")
    ratios = {
        f"{figure}_to_{other}": round(gateways[OURS][figure] / gateways[other][figure], 2)
        for figure in FIGURES
        for other in others()
        if gateways[OURS][figure] and gateways[other][figure]
    }
    ours = latency_and_memory([row for row in rows if row["gateway"] == OURS])
    beyond = [
        f"{figure} {value} of {ROUTER}'s, {RATIOS[figure]} at most"
        for figure in FIGURES
        if (value := ratios.get(f"{figure}_to_{ROUTER}", 0.0)) > RATIOS[figure]
    ]
    beyond += [f"{name} {ours[name]}, {most} at most" for name, most in MOST.items()
               if ours[name] is None or ours[name] > most]  # fmt: skip
    return {"gateways": gateways, "ratios": ratios, **ours, "problems": problems + beyond}


def latency_and_memory(rows: list[dict]) -> dict:
    """Medians over the rounds of our own gateway."""
    latency = [row["w"]["latency"] for row in rows if row["w"].get("latency")]
    slow = [row["w"]["slow500"] for row in rows if row["w"].get("slow500")]
    values = {
        "added_p50_ms": [w["svc_ms"]["p50"] - w["direct"]["p50"] for w in latency if "direct" in w],
        "pss_mb_500_streams": [w["pss_mb"] for w in slow],
    }
    return {n: round(statistics.median(v), 2) if v else None for n, v in values.items()}


def main() -> int:
    """Measures, writes the report, prints one summary line last."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--reports", type=Path, default=Path("build/reports"))
    chosen = options.parse_args()
    results = (chosen.reports / "bench" / "results.jsonl").resolve()
    report = summarise(run(chosen.rounds, chosen.seed, results))
    report |= {"rounds": chosen.rounds, "seed": chosen.seed}
    (chosen.reports / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    for problem in report["problems"]:
        print("bench: problem:", problem)
    if ROUTER not in report["gateways"]:
        print(f"bench: {ROUTER} is not here, so the ratios to it are not measured")
    ours = report["gateways"][OURS]
    print(
        f"bench: {'FAILED' if report['problems'] else 'ok'}:",
        f"elasticd {ours['cpu_us_per_request']} us CPU a request,",
        f"{ours['cpu_us_per_token']} us a token,",
        f"{report['added_p50_ms']} ms added p50,",
        f"{report['pss_mb_500_streams']} MB for 500 streams;",
        ", ".join(f"{name} {value}" for name, value in report["ratios"].items()),
    )
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
