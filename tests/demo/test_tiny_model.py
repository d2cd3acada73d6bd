"""Making the tiny model: cached, whole, agreed upon; and what the made one does (e2e)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.demo import texts, tiny_model
from elasticd.demo.tiny_model import MARKER, CannotMake


def _fake_training(monkeypatch: pytest.MonkeyPatch, after: Callable[[], None]) -> list[Path]:
    """In place of a minute of training; answers with the drafts that were written."""
    drafts: list[Path] = []

    def write(draft: Path, say: Callable[[str], None]) -> None:
        drafts.append(draft)
        (draft / "model.safetensors").write_text("weights")
        after()
        (draft / MARKER).write_text(json.dumps({"version": tiny_model.version()}))

    monkeypatch.setattr(tiny_model, "_write_model", write)
    monkeypatch.setattr(tiny_model, "_NEEDED", ())
    return drafts


def test_a_finished_model_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = _fake_training(monkeypatch, lambda: None)
    assert tiny_model.make(tmp_path / "m") == tmp_path / "m"
    tiny_model.make(tmp_path / "m")
    assert len(drafts) == 1
    assert (tmp_path / "m" / "model.safetensors").read_text() == "weights"


def test_a_model_of_older_texts_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = _fake_training(monkeypatch, lambda: None)
    tiny_model.make(tmp_path / "m")
    (tmp_path / "m" / MARKER).write_text(json.dumps({"version": "older"}))
    tiny_model.make(tmp_path / "m")
    assert len(drafts) == 2
    assert tiny_model.finished(tmp_path / "m")


def test_a_failed_making_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise CannotMake("half way")

    _fake_training(monkeypatch, fail)
    with pytest.raises(CannotMake, match="half way"):
        tiny_model.make(tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == [".m.lock"]


def test_makers_at_the_same_time_agree_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_wait = threading.Barrier(3)
    drafts = _fake_training(monkeypatch, lambda: None)
    found: list[Path] = []

    def make() -> None:
        others_wait.wait(20)
        found.append(tiny_model.make(tmp_path / "m"))

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [tmp_path / "m"] * 3
    assert len(drafts) == 1


def test_a_directory_with_something_else_in_it_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_training(monkeypatch, lambda: None)
    (tmp_path / "precious").write_text("thesis")
    with pytest.raises(CannotMake, match="something else"):
        tiny_model.make(tmp_path)
    assert (tmp_path / "precious").read_text() == "thesis"


def test_without_torch_it_imports_and_says_what_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'tokenizers', 'safetensors', 'numpy'):\n"
        "    sys.modules[name] = None  # as if it were not installed\n"
        "from elasticd.demo import tiny_model\n"
        "sys.exit(tiny_model.main([sys.argv[1]]))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "m")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("elasticd: the tiny model needs torch, ")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.e2e
def test_the_made_model_is_complete_and_keeps_its_promises(model_dir: Path) -> None:
    names = {path.name for path in model_dir.iterdir()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    checked = json.loads((model_dir / MARKER).read_bytes())["checked"]
    assert checked["unknown prompts"] == 40
    assert checked["distinct"] >= 10
    for promise in ("valid UTF-8", "aperiodic"):
        assert checked[promise] >= 38


@pytest.mark.e2e
def test_another_program_reads_the_model_and_gets_the_text(model_dir: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    text = texts.PLAIN[1]
    encoded = tokenizer.apply_chat_template(
        [{"role": "user", "content": text.prompt}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answered = model.generate(**encoded, max_new_tokens=700, do_sample=False)
    new = answered[0, encoded["input_ids"].shape[1] :]
    assert tokenizer.decode(new, skip_special_tokens=True) in text.answers()
