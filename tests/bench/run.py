#!/usr/bin/env python3
"""`make bench`: elasticd's gateway beside two Python stand-ins, in front of the same stub replicas.

Runs the kit (README.md) for a short time and writes build/reports/bench.json: medians over the
rounds, and ratios to the stand-ins within the same run, which is all that may be compared. Exits 1
when an answer was wrong or too little was measured. The last line sums up.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent
OURS, STAND_INS = "elasticd", ("py-relay", "py-aiohttp")
FIGURES = {  # name: (workload, its unit, the fewest units that count as a measurement)
    "cpu_us_per_request": ("short", "ok", 500),
    "cpu_us_per_token": ("stream64", "tokens", 10_000),
}


def run(rounds: int, seed: int, results: Path) -> list[dict]:
    """All rounds of the kit; one row per gateway and round."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    command = [sys.executable, KIT / "compare.py", KIT / "gateways.toml", "--out", results]
    command += ["--rounds", str(rounds), "--seed", str(seed)]
    command += ["--only", ",".join((OURS, *STAND_INS)), "--workloads", "short,stream64"]
    subprocess.run(command, check=True)
    return [json.loads(line) for line in results.read_text().splitlines()]


def cost(row: dict, workload: str, unit: str) -> float | None:
    """CPU microseconds of the gateway's process tree per unit, its idle rate taken off."""
    done = row["w"].get(workload)
    if not done or not done[unit]:
        return None
    return (done["gw_cpu_s"] - row.get("idle_cpu_share", 0) * done["span_s"]) / done[unit] * 1e6


def summarise(rows: list[dict]) -> dict:
    """Figures and counts of each gateway, our ratios, and what was wrong."""
    gateways = {name: {} for name in ("direct", OURS, *STAND_INS)}
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
        for other in STAND_INS
        if gateways[OURS][figure] and gateways[other][figure]
    }
    return {"gateways": gateways, "ratios": ratios, "problems": problems}


def main() -> int:
    """Measures, writes the report, prints one summary line last."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--reports", type=Path, default=Path("build/reports"))
    chosen = options.parse_args()
    results = (chosen.reports / "bench" / "results.jsonl").resolve()
    report = summarise(run(chosen.rounds, chosen.seed, results))
    report |= {"rounds": chosen.rounds, "seed": chosen.seed}
    (chosen.reports / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    for problem in report["problems"]:
        print("bench: problem:", problem)
    ours = report["gateways"][OURS]
    print(
        f"bench: {'FAILED' if report['problems'] else 'ok'}:",
        f"elasticd {ours['cpu_us_per_request']} us CPU a request,",
        f"{ours['cpu_us_per_token']} us a token;",
        ", ".join(f"{name} {value}" for name, value in report["ratios"].items()),
    )
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
