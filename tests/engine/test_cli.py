"""The `strata` program, in this process and as a person starts it, over a tiny real model."""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import __version__
from engine.cli import main
from tests.builders import make_tiny_llama

GENERATE = ["--temperature", "0", "--max-new", "12"]
PSALM = (
    "The LORD is my shepherd; I shall not want. He maketh me to lie down in green pastures: he "
    "leadeth me beside the still waters. He restoreth my soul: he lead"
)
"""What bard says, greedily; it knows this one by heart."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("cli") / "tiny.gguf", context_tokens=256)


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """The program sets up the log of its process; other tests shall not inherit that."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    return put


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )


# --------------------------------------------------------------------------- usage


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"strata {__version__}\n"
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("generate", "chat", "serve", "info", "logits"))


@pytest.mark.parametrize("command", ["generate", "chat", "serve", "info", "logits"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "MODEL" in capsys.readouterr().out


def test_unknown_flags_are_usage_errors(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(model), "--temprature", "1"])
    assert ended.value.code == 2
    assert "--temprature" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prompt", "x", "--temperature", "-1"], "temperature must be between 0 and 1000"),
        (["--prompt", "x", "--max-new", "0"], "--max-new must be 1 or more, got 0"),
        (["--prompt", "x", "--max-context", "1"], "--max-context must be 2 or more, got 1"),
        (["--prompt", "x", "--span", "0"], "--span must be 1 or more, got 0"),
        (["--prompt", "x", "--backend", "abacus"], "--backend 'abacus' is not there"),
        (["--prompt", ""], "The prompt is empty"),
        (["--prompt", "x", "--raw", "--system", "y"], "--raw leaves that away"),
    ],
)
def test_wrong_values_are_usage_errors_in_one_sentence(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["generate", str(model), *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert sentence in shown.err
    assert shown.err.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path / "no.gguf")]) == 1
    assert "no.gguf is not there" in capsys.readouterr().err
    assert main(["info", str(tmp_path)]) == 1
    assert "is a folder" in capsys.readouterr().err


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fake.gguf"
    path.write_bytes(b"not a model, but long enough to look at" * 10)
    assert main(["generate", str(path), "--prompt", "x"]) == 1
    shown = capsys.readouterr()
    assert "fake.gguf" in shown.err
    assert shown.err.count("\n") == 1


def test_a_name_of_a_model_that_was_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    assert main(["info", "smollm2"]) == 1
    said = capsys.readouterr().err
    assert "python -m installer run" in said
    assert "bard needs no download" in said


def test_two_models_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "bard", "--model", "smollm2"]) == 2
    assert "Two models were named, bard and --model smollm2." in capsys.readouterr().err


# --------------------------------------------------------------------------- info


def test_info_tells_kv_bytes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(model), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    # 2 layers x (K and V) x 2 heads x 16 values x 2 bytes
    assert fields["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert fields["kv_bytes_per_context"] == 256 * fields["kv_bytes_per_token"]
    assert fields["architecture"] == "llama"
    assert main(["info", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "K/V per token           256 B" in shown
    assert "K/V of a whole context  64.0 KiB (65,536 B)" in shown


def test_the_demo_model_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine.paths import demo_model

    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    demo_model().parent.mkdir()
    make_tiny_llama(demo_model())
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(demo_model())


@pytest.mark.parametrize("named", [[], ["bard"], ["Bard"], ["--model", "bard"], ["--model=BARD"]])
def test_the_bundled_model_by_name_and_where_there_is_no_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: list[str],
) -> None:
    from engine.paths import bundled_model

    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    assert main(["info", *named, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(bundled_model())


def test_the_demo_model_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine.paths import demo_model

    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    demo_model().parent.mkdir()
    make_tiny_llama(demo_model())
    assert main(["info", "smollm2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(demo_model())


# --------------------------------------------------------------------------- generate


def test_the_bundled_model_answers(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--prompt", "Recite Psalm 23:1-3.", "--max-new", "39", "--json"]
    assert main(["generate", "bard", *flags]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["model"] == "bard-q4_k_m"
    assert fields["text"] == PSALM
    assert fields["usage"]["completion_tokens"] == 39


def test_generate_prints_the_answer_only(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(model), "--prompt", "hello world", *GENERATE]) == 0
    first = capsys.readouterr()
    assert first.out.strip()
    assert first.out.endswith("\n")
    assert first.err == ""
    assert main(["generate", str(model), "--prompt", "hello world", *GENERATE]) == 0
    assert capsys.readouterr().out == first.out


def test_generate_as_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(model), "--prompt", "hello", *GENERATE]) == 0
    text = capsys.readouterr().out.removesuffix("\n")
    assert main(["generate", str(model), "--prompt", "hello", "--json", *GENERATE]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["text"].removesuffix("\n") == text
    assert fields["model"] == "tiny"
    assert fields["truncated"] is False
    if fields["finish_reason"] == "length":
        assert fields["usage"]["completion_tokens"] == 12
    assert fields["usage"]["cached_tokens"] == 0


def test_the_prompt_may_come_from_stdin(
    model: Path, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["generate", str(model), "--prompt", "hello world", *GENERATE])
    wanted = capsys.readouterr().out
    type_in("hello world\n")
    assert main(["generate", str(model), *GENERATE]) == 0
    assert capsys.readouterr().out == wanted


def test_raw_leaves_the_template_away(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = []
    for flags in ([], ["--raw"], ["--system", "the cat"]):
        main(["generate", str(model), "--prompt", "hello", "--json", *flags, *GENERATE])
        counts.append(json.loads(capsys.readouterr().out)["usage"]["prompt_tokens"])
    chat, raw, with_system = counts
    assert raw < chat < with_system


def test_seeds_repeat_and_differ(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        flags = ["--temperature", "1", "--max-new", "24", "--seed", seed]
        main(["generate", str(model), "--prompt", "hello", *flags])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_a_prompt_longer_than_the_context(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(model), "--prompt", "cat " * 400, *GENERATE]) == 1
    assert "context length of this server is 256 tokens" in capsys.readouterr().err


def test_stats_count_what_was_done(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["generate", str(model), "--prompt", "hello", "--stats", *GENERATE])
    shown = capsys.readouterr()
    assert "tokens/s" in shown.err
    assert "tokens/s" not in shown.out


def test_verbose_shows_where_an_error_arose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(tmp_path / "no.gguf"), "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


# --------------------------------------------------------------------------- chat


def test_chat_goes_on_and_begins_anew(
    model: Path, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def talk(*lines: str) -> list[str]:
        type_in("".join(f"{line}\n" for line in lines))
        assert main(["chat", str(model), "--temperature", "0", "--max-new", "6"]) == 0
        return capsys.readouterr().out.splitlines()

    once = talk("hello")
    twice = talk("hello", "hello")
    again = talk("hello", "/reset", "hello", "/exit", "never read")
    assert once
    assert twice[: len(once)] == once
    assert again == once + once
    assert twice != again


def test_chat_says_what_it_knows(
    model: Path, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in("/help\n/fly now\n\n")
    assert main(["chat", str(model)]) == 0
    shown = capsys.readouterr()
    assert "/reset" in shown.err
    assert "There is no command /fly" in shown.err
    assert shown.out == ""


def test_a_message_that_does_not_fit_leaves_the_conversation(
    model: Path, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in("cat " * 400 + "\nhello\n")
    assert main(["chat", str(model), "--temperature", "0", "--max-new", "6"]) == 0
    shown = capsys.readouterr()
    assert "/reset begins a new conversation" in shown.err
    type_in("hello\n")
    main(["chat", str(model), "--temperature", "0", "--max-new", "6"])
    assert capsys.readouterr().out == shown.out


# --------------------------------------------------------------------------- logits


def test_logits_names_the_likeliest(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logits", str(model), "--prompt", "the cat", "--top", "3", "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert [entry["rank"] for entry in fields["top"]] == [1, 2, 3]
    values = [entry["logit"] for entry in fields["top"]]
    assert values == sorted(values, reverse=True)
    assert 0 < fields["top"][0]["probability"] < 1


def test_logits_takes_ids_and_writes_arrays(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, given = tmp_path / "logits.npz", tmp_path / "ids.npy"
    flags = ["--prompt", "the cat", "--raw", "--greedy", "3", "--json"]
    assert main(["logits", str(model), *flags, "--out", str(out)]) == 0
    fields = json.loads(capsys.readouterr().out)
    with np.load(out) as arrays:
        assert arrays["ids"].tolist() == fields["ids"]
        assert arrays["greedy"].tolist() == fields["greedy"]
        assert len(arrays["argmax"]) == len(fields["ids"])
        assert int(arrays["last_logits"].argmax()) == fields["top"][0]["id"] == fields["greedy"][0]
    np.save(given, np.array(fields["ids"], np.uint16))
    for ids in (",".join(str(token) for token in fields["ids"]), str(given)):
        assert main(["logits", str(model), "--ids", ids, "--json", "--span", "1"]) == 0
        assert json.loads(capsys.readouterr().out)["top"] == fields["top"]


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ("1,x", "must be whole numbers"),
        ("99999", "the model knows ids 0 .. 351"),
        ("no.npy", "cannot be read as a .npy file"),
    ],
)
def test_wrong_ids_are_named(
    model: Path, capsys: pytest.CaptureFixture[str], ids: str, sentence: str
) -> None:
    assert main(["logits", str(model), "--ids", ids]) == 2
    assert sentence in capsys.readouterr().err


# --------------------------------------------------------------------------- serve, processes


@pytest.fixture
def server(model: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    child = start(
        "serve",
        str(model),
        "--json",
        "--batch",
        "2",
        "--kv-pool-tokens",
        "512",
        "--kv-chunk-cells",
        "64",
        "--check",
        "--alias",
        "little",
        "--allow-host",
        "little.example",
        "--allow-origin",
        "https://page.example",
    )
    with child:
        assert child.stdout is not None
        events = [json.loads(child.stdout.readline()), json.loads(child.stdout.readline())]
        assert [event["event"] for event in events] == ["listening", "ready"]
        assert events[1]["model"] == "little"
        yield child, events[0]["address"]
        if child.poll() is None:
            child.terminate()


def ask(address: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_serve_answers_and_ends_on_sigterm(server: tuple[subprocess.Popen[str], str]) -> None:
    child, address = server
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}
    status, reply = ask(address, "POST", "/v1/chat/completions", body)
    assert status == 200
    assert reply["model"] == "little"
    _, told = ask(address, "GET", "/v1/status")
    pool = told["engine"]["kv_pool"]
    assert (pool["cells"], pool["chunk_cells"]) == (512, 64)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "little.example", 200),
        ("Host", "large.example", 403),
        ("Origin", "https://page.example", 200),
        ("Origin", "https://other.example", 403),
    ],
)
def test_serve_lets_in_whom_it_was_told(
    server: tuple[subprocess.Popen[str], str], header: str, value: str, status: int
) -> None:
    connection = http.client.HTTPConnection(server[1].removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", "/health", headers={header: value})
        assert connection.getresponse().status == status
    finally:
        connection.close()


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_keep_alive_is_a_time(
    model: Path, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    assert main(["serve", str(model), "--keep-alive", seconds]) == 2
    assert "--keep-alive must be 0 or more seconds" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_a_server_with_130(server: tuple[subprocess.Popen[str], str]) -> None:
    child, _ = server
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=30) == 130


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_port_that_was_asked_for_and_is_taken(
    model: Path, server: tuple[subprocess.Popen[str], str]
) -> None:
    port = server[1].rsplit(":", 1)[1]
    child = start("serve", str(model), "--port", port)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 2
    assert port in said
    assert "Traceback" not in said


def test_a_reader_that_goes_away_is_no_crash(model: Path) -> None:
    child = start(
        "generate",
        str(model),
        "--prompt",
        "hello",
        "--max-new",
        "200",
        "--temperature",
        "1",
        "--seed",
        "1",
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        child.stdin.close()
        child.stdout.close()
        said = child.stderr.read()
        child.stderr.close()
    assert child.returncode in (0, 1)
    assert "Traceback" not in said


@pytest.mark.model
def test_the_demo_model_answers(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "What is the capital of France? Answer in one word."
    flags = ["--prompt", prompt, "--max-new", "16"]
    assert main(["generate", str(smollm2_path), *flags]) == 0
    assert "Paris" in capsys.readouterr().out
