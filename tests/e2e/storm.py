"""Replicas are killed under streams, again and again, and no client notices: real Ray, real vLLM.

    python -m tests.e2e.storm [--short | --stage NAME] [--kills N] [--seed N]

First every question is answered undisturbed, twice: how often two undisturbed answers differ is
what a broken one may be measured by. Then replicas are struck in the middle of streams and of
requests that were only just sent: by SIGKILL of a machine or an engine, with notice, two at once,
and the one that goes on with another's streams. Each answer must be the undisturbed one, byte for
byte, with its usage. Strikes go on until enough was hit, but not for ever. Writes
`build/reports/storm.json`, or `storm-STAGE.json` of one alone, and exits non-zero where a stream
was lost or differs, or where too little was hit. What elasticd said is kept beside the report.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import yaml

from elasticd.demo.load import first_token
from elasticd.demo.stack import Stack
from elasticd.demo.texts import PLAIN as TEXTS
from tests.e2e import storm_strikes as strikes
from tests.e2e.stack_config import ROOT, take_own_ports
from tests.e2e.storm_brakes import can_be_slow
from tests.e2e.storm_figures import Figures
from tests.e2e.storm_questions import (
    Question,
    parsed_questions,
    plain_questions,
    quick_questions,
    wide_texts,
)
from tests.e2e.storm_scene import MODEL, REPLICAS, Scene, serving
from tests.e2e.storm_strikes import Kind

REPORTS = ROOT / "build" / "reports"
_START = 500.0
_SLOW = "slow"
_PARSER = {
    "reasoning-parser": "qwen3",
    "enable-auto-tool-choice": True,
    "tool-call-parser": "hermes",
}


@dataclass(frozen=True)
class Stage:
    """One stack and what it goes through. `floor`: the least that must have been hit."""

    name: str
    questions: Sequence[Question]
    strikes: Sequence[Kind]
    floor: dict[str, int]
    engine_args: dict[str, Any] = field(default_factory=dict)

    def missing(self, figures: Figures) -> list[str]:
        """What was hit too little; empty: nothing."""
        return [
            f"{self.name}: {name} {getattr(figures, name)} of {least}"
            for name, least in self.floor.items()
            if getattr(figures, name) < least
        ]


def short() -> Stage:
    """A few minutes."""
    texts = wide_texts(5)
    asked = plain_questions(texts)
    asked += [question for question in asked if question.stop]
    asked += quick_questions(texts)
    floor = {"kills": 5, "continued": 10, "inside": 3, "stop": 3, "twice": 1}
    return Stage("short", asked, strikes.SHORT, floor)


def plain() -> Stage:
    """Engines as most are started."""
    ordered = wide_texts(len(TEXTS))
    asked = [*plain_questions(ordered), *plain_questions(ordered)[:20], *quick_questions(TEXTS)]
    floor = {"kills": 17, "continued": 60, "inside": 15, "stop": 15, "twice": 8, "restarted": 15}
    return Stage("plain", asked, strikes.PLAIN, floor)


def parsed() -> Stage:
    """Engines that parse their answers, every stream of chat."""
    asked = [*parsed_questions(), *quick_questions(TEXTS)]
    floor = {"kills": 10, "parser": 15, "in_tool_call": 5, "restarted": 5}
    return Stage("parsed", asked, strikes.PARSED, floor, _PARSER)


def write_config(folder: Path, engine_args: dict[str, Any]) -> Path:
    """The embedded default with three replicas, each on a machine of its own."""
    config = yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))
    config["cluster"] = "storm"
    config["state_dir"] = str(folder / "state")
    config["on_stop"] = "release"
    take_own_ports(config)
    config["node_pools"][0]["max_nodes"] = REPLICAS + 4
    model = config["models"][0]
    model["scaling"] |= {"min_replicas": REPLICAS, "max_replicas": REPLICAS}
    model["engine_args"] |= engine_args
    can_be_slow(model, folder / _SLOW)
    # Engines that are killed soon after their start look like a model that cannot be served.
    model["start_attempts"] = 1000
    path = folder / "storm.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def keep_logs(folder: Path, to: Path) -> None:
    """What elasticd said, for who has to find out why a stream was lost."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for log in (folder / "run.log", *folder.glob("state/logs/*.log*")):
        shutil.copy(log, to)


async def play(stage: Stage, seed: int) -> Figures:
    """All strikes of a stage, and more of them while too little was hit, twice as many at most."""
    folder = Path(tempfile.mkdtemp(prefix="est"))
    stack = Stack(write_config(folder, stage.engine_args), folder / "run.log")
    scene = Scene(stack, folder / _SLOW, random.Random(seed), stage.questions)
    try:
        stack.start()
        await stack.until("three replicas serve", serving, _START)
        await first_token(stack.url, MODEL, _START)
        await scene.undisturbed()
        number = max(len(stage.strikes), stage.floor["kills"])
        more = cycle((Kind.SUCCESSOR, Kind.MACHINE))
        for done, kind in enumerate(chain(stage.strikes, more)):
            enough = done >= len(stage.strikes) and not stage.missing(scene.figures)
            if enough or done == 2 * number:
                break
            await scene.strike(kind)
            scene.count_restarted()
            so_far = f"{stage.name}, {kind.value}: {scene.figures.so_far}"
            print(f"storm: {so_far}", file=sys.stderr, flush=True)
        await scene.settle()
        await stack.stop()
    finally:
        await scene.aclose()
        stack.kill_everything()
        keep_logs(folder, REPORTS / f"storm-{stage.name}")
        shutil.rmtree(folder, ignore_errors=True)
    return scene.figures


async def run(stages: Sequence[Stage], seed: int) -> dict[str, Any]:
    """Sums over the stages, what is bad, and each stage's figures; written down as well."""
    began = time.monotonic()
    told: dict[str, Any] = {"seed": seed, "stages": {}, "missing": []}
    for stage in stages:
        figures = await play(stage, seed)
        told["stages"][stage.name] = vars(figures)
        told["missing"] += stage.missing(figures)
    for name in vars(Figures()):
        parts = [vars_[name] for vars_ in told["stages"].values()]
        told[name] = list(chain(*parts)) if isinstance(parts[0], list) else sum(parts)
    told["seconds"] = round(time.monotonic() - began, 1)
    REPORTS.mkdir(parents=True, exist_ok=True)
    name = f"storm-{stages[0].name}.json" if len(stages) == 1 else "storm.json"
    (REPORTS / name).write_text(json.dumps(told, indent=2, ensure_ascii=False), encoding="utf-8")
    return told


def bad(told: dict[str, Any]) -> list[str]:
    """Everything that must not be; empty: all is well."""
    wrong = [f"{told[name]} {name}" for name in ("doubled", "leaked") if told[name]]
    wrong += [f"{d['node_id']}: {d['lost']} lost" for d in told["departures"] if d["lost"]]
    return [*told["lost"], *told["differ"], *wrong, *told["missing"]]


def summary(told: dict[str, Any]) -> str:
    """The one line."""
    return (
        f"storm: {'FAILED' if bad(told) else 'ok'}: seed {told['seed']}, {told['seconds']:.0f} s; "
        f"{told['kills']} kills, {told['answered']} answered, {told['continued']} continued "
        f"({told['inside']} inside a character, {told['stop']} with stop, {told['twice']} twice, "
        f"{told['parser']} with a parser, {told['in_tool_call']} inside a tool call), "
        f"{told['restarted']} restarted; lost {len(told['lost'])}, differ {len(told['differ'])}, "
        f"doubled {told['doubled']}, prompt leaked {told['leaked']}; "
        f"undisturbed {told['base_differ']} of {told['base_asked']} differ"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="five kills")
    form.add_argument("--stage", choices=("plain", "parsed"), help="this one alone")
    parser.add_argument("--kills", type=int, default=None, help="at least, of the first stage")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.randrange(2**32) if args.seed is None else args.seed
    stages = [stage for stage in (plain(), parsed()) if args.stage in (None, stage.name)]
    stages = [short()] if args.short else stages
    if args.kills is not None:
        floor = {**stages[0].floor, "kills": args.kills}
        stages[0] = replace(stages[0], floor=floor)
    told = asyncio.run(run(stages, seed))
    for line in bad(told):
        print(line)
    print(summary(told))
    return 1 if bad(told) else 0


if __name__ == "__main__":
    sys.exit(main())
