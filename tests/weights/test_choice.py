"""What of a repository is fetched, what a source may be called, and what a refusal says."""

from __future__ import annotations

import pytest

from elasticd.weights.answers import HubAway, HubRefused, away, refusal, usual_hub, without_secrets
from elasticd.weights.choice import HubFile, NoWeights, needed_files, weight_files
from elasticd.weights.progress import (
    Fetched,
    FetchFailed,
    FetchProgress,
    from_line,
    size_text,
    to_line,
)
from elasticd.weights.source import HubSource, parse_source

HUB = "https://hub.example"
SOURCE = HubSource("lab/tiny", "main")
GIB = 1 << 30


def _chosen(*paths: str) -> list[str]:
    return [file.path for file in needed_files([HubFile(path, 1) for path in paths])]


def test_safetensors_go_before_the_other_formats() -> None:
    assert _chosen(
        "model.safetensors", "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "old.pt"
    ) == ["model.safetensors"]
    assert _chosen("pytorch_model.bin", "training_args.bin", "rust_model.ot") == [
        "pytorch_model.bin"
    ]
    assert _chosen("config.json", "weights.pt") == ["config.json", "weights.pt"]


def test_the_same_weights_in_one_file_are_not_fetched_beside_the_shards() -> None:
    assert _chosen(
        "model-1-of-2.safetensors", "model-2-of-2.safetensors", "consolidated.safetensors"
    ) == ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]


def test_mistrals_own_format_is_taken_where_the_engine_would_take_it() -> None:
    assert _chosen(
        "params.json", "config.json", "consolidated.safetensors", "model-1-of-1.safetensors"
    ) == ["config.json", "params.json", "consolidated.safetensors"]


def test_tokenizer_templates_and_code_come_along_and_papers_do_not() -> None:
    assert _chosen(
        *("model.safetensors", "tokenizer.model", "qwen.tiktoken", "chat_template.jinja"),
        *("modeling_own.py", "1_Pooling/config.json", "README.md", "LICENSE.pdf", "a.png"),
        *(".gitattributes", "original/model.safetensors", "onnx/model.onnx", "gguf/q4.gguf"),
    ) == [
        "1_Pooling/config.json",
        "chat_template.jinja",
        "modeling_own.py",
        "qwen.tiktoken",
        "tokenizer.model",
        "model.safetensors",
    ]


@pytest.mark.parametrize("path", ["../up.json", "/etc/own.json", "a/../../up.json"])
def test_a_path_that_leads_out_is_never_fetched(path: str) -> None:
    assert _chosen("model.safetensors", path) == ["model.safetensors"]


def test_a_repository_without_weights_is_told_with_what_it_holds() -> None:
    with pytest.raises(NoWeights, match=r"it holds \.gguf, \.onnx files"):
        weight_files([HubFile("q4.gguf", 1), HubFile("model.onnx", 1)])
    with pytest.raises(NoWeights, match="it holds no weights at all"):
        weight_files([HubFile("README.md", 1)])


@pytest.mark.parametrize(
    ("text", "repo", "revision", "exact"),
    [
        ("hf:gpt2", "gpt2", "main", False),
        ("hf:Qwen/Qwen2.5-14B-Instruct@main", "Qwen/Qwen2.5-14B-Instruct", "main", False),
        ("hf:lab/tiny@refs/pr/1", "lab/tiny", "refs/pr/1", False),
        ("hf:lab/tiny@" + "a1" * 20, "lab/tiny", "a1" * 20, True),
    ],
)
def test_sources_are_read(text: str, repo: str, revision: str, exact: bool) -> None:
    source = parse_source(text)
    assert (source.repo, source.revision, source.is_exact) == (repo, revision, exact)
    assert parse_source(str(source)) == source


@pytest.mark.parametrize(
    "text", ["lab/tiny", "hf:", "hf:../x", "hf:a/b/c", "hf:lab/tiny@", "hf:lab/tiny@../x", "hf:a b"]
)
def test_a_source_that_could_lead_anywhere_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hf:"):
        parse_source(text)


@pytest.mark.parametrize(
    ("status", "code", "has_token", "words"),
    [
        (401, "GatedRepo", False, "accept its licence at https://hub.example/lab/tiny and set"),
        (403, "GatedRepo", True, "with the account of weights.token"),
        (401, "RepoNotFound", False, "is unknown to https://hub.example, or private"),
        (401, "", True, "does not accept the token"),
        (403, "", True, "the right to read it"),
        (404, "RepoNotFound", True, "knows no repository lab/tiny"),
        (404, "RevisionNotFound", False, "knows no revision 'main' of lab/tiny"),
        (404, "EntryNotFound", False, "lacks a file"),
        (418, "", False, "answers 418"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, code: str, has_token: bool, words: str) -> None:
    error = refusal(status, code, SOURCE, HUB, has_token=has_token)
    assert isinstance(error, HubRefused)
    assert words in str(error)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_no_refusal(status: int) -> None:
    assert isinstance(refusal(status, "", SOURCE, HUB, has_token=False), HubAway)


def test_without_a_mirror_the_hub_is_where_its_own_library_looks() -> None:
    assert usual_hub({}) == "https://huggingface.co"
    assert usual_hub({"HF_ENDPOINT": "https://mirror.example/"}) == "https://mirror.example"


def test_signed_addresses_lose_their_signature() -> None:
    said = without_secrets("get https://cdn.example/a/b?Signature=opens&Key=it failed\nbadly")
    assert said == "get https://cdn.example/a/b failed badly"
    assert "opens" not in str(away(OSError("https://cdn.example/a?x=opens"), HUB))


def test_progress_reads_as_people_say_it() -> None:
    known = FetchProgress(int(9.53 * GIB), 28 * GIB, 120.4 * (1 << 20))
    assert str(known) == "34 % of 28.0 GiB, 120 MiB/s"
    assert str(FetchProgress(note="asking the hub")) == "asking the hub"
    assert size_text(0) == "0 B"


@pytest.mark.parametrize(
    "told",
    [FetchProgress(1, 2, 3.5, "slow"), FetchProgress(), Fetched("/w"), FetchFailed("no: “x”")],
)
def test_what_the_fetcher_tells_arrives(told: object) -> None:
    assert from_line(to_line(told)) == told  # type: ignore[arg-type]


def test_other_lines_are_not_taken_for_news() -> None:
    for line in ("", "a warning", "[1]", '{"fetching": 1}', "{}"):
        assert from_line(line) is None


def test_a_line_fits_the_supervisors_limit_however_long_the_sentence() -> None:
    from elasticd.node.engine_supervisor import LINE_LIMIT

    assert len(to_line(FetchFailed("x" * 5000))) < LINE_LIMIT
    assert len(to_line(FetchProgress(1 << 50, 1 << 50, 1e12 / 7, "x" * 5000))) < LINE_LIMIT
