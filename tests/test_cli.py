import csv
import doctest
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from dispersion import commands, errors
from dispersion.cli import cli, main
from dispersion.enclosure import Enclosure
from dispersion.results import Audit, Refused
from dispersion.verdict import HeadResult, Result, Target, Verdict

DEMO = "demo:headwise"


class Run:
    """A command line run in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.code = main(arguments)
        self.out, self.err = capsys.readouterr()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    return lambda *arguments: Run(capsys, *arguments)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Four query heads and two key heads of 8 on inputs of width 32."""
    generator = np.random.default_rng(0)
    paths = []
    for name, rows in (("q", 32), ("k", 16)):
        path = tmp_path / f"{name}.npy"
        np.save(path, generator.standard_normal((rows, 32)).astype(np.float32) / 8)
        paths.append(str(path))
    return paths[0], paths[1]


# The answer


def test_check_prints_the_answer_first(run) -> None:
    result = run("check", DEMO)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("demo:headwise  qwen3, ")
    assert lines[2].startswith("Can a head put 50% on one token?")
    assert [line.split()[0] for line in lines[4:9]] == ["4K", "16K", "64K", "256K", "1M"]
    assert result.err == ""


def test_lengths_and_target_are_asked_as_given(run) -> None:
    result = run("check", DEMO, "--length", "128k,64", "--length", "32", "--target", "0.9")
    report = json.loads(run("check", DEMO, "--length", "64,128k", "--length", "32",
                            "--target", "0.9", "--json", "-").out)  # fmt: skip
    assert [t["length"] for t in report["targets"]] == [32, 64, 131072]
    assert {t["coefficient"] for t in report["targets"]} == {0.9}
    assert "Can a head put 90% on one token?" in result.out


def test_more_sink_tokens_allow_more(run) -> None:
    one, four = (
        json.loads(run("check", DEMO, "--sink-tokens", m, "--json", "-").out) for m in ("0", "4")
    )
    for alone, together in zip(one["heads"], four["heads"], strict=True):
        for a, b in zip(alone["results"], together["results"], strict=True):
            assert a["ceiling"]["upper"] < b["ceiling"]["upper"]


def test_layers_and_heads_filter(run) -> None:
    full = json.loads(run("check", DEMO, "--json", "-").out)
    some = json.loads(run("check", DEMO, "--layers", "0", "--heads", "1-1", "--json", "-").out)
    expected = [h for h in full["heads"] if h["layer"] == 0 and h["head"] == 1]
    assert some["heads"] == expected
    assert len(full["heads"]) > len(expected) == 1


# Files and streams


def test_json_and_csv_on_stdout_come_alone(run) -> None:
    assert json.loads(run("check", DEMO, "--json", "-").out)["schema"] == "dispersion.audit/1"
    rows = list(csv.DictReader(io.StringIO(run("check", DEMO, "--csv", "-").out)))
    assert rows[0]["source"] == DEMO


def test_files_are_written_beside_the_report(run, tmp_path: Path) -> None:
    path_json, path_csv = tmp_path / "a.json", tmp_path / "a.csv"
    result = run("check", DEMO, "--json", str(path_json), "--csv", str(path_csv))
    assert result.out.startswith(DEMO)
    heads = json.loads(path_json.read_text())["heads"]
    rows = list(csv.DictReader(io.StringIO(path_csv.read_text())))
    assert len(rows) == 5 * len(heads)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.json"]


def test_an_unwritable_file_fails_before_the_checkpoint_is_read(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_audit", lambda *_: pytest.fail("computed"))
    result = run("check", DEMO, "--csv", "fine.csv", "--json", str(tmp_path / "no" / "a.json"))
    assert result.code == 2
    assert re.fullmatch(r"error: output '.*a\.json' cannot be written: .*\n", result.err)
    assert not Path("fine.csv").exists()


def test_a_failing_check_leaves_no_file(run, tmp_path: Path) -> None:
    result = run("check", str(tmp_path / "none"), "--json", str(tmp_path / "a.json"))
    assert result.code == 2
    assert list(tmp_path.iterdir()) == []


# Exit codes


def hand_made(*verdicts: Verdict, refused: tuple[Refused, ...] = (), left_out=()) -> Audit:
    target = Target(4096)
    heads = []
    for i, verdict in enumerate(verdicts):
        spread = Enclosure(0.0, math.inf if verdict is Verdict.UNBOUNDED else 9.0)
        results = (Result(target, Enclosure(0.0, 1.0), verdict),)
        heads.append(
            HeadResult("attn", 0, i, i, spread, math.inf, None, "a cap", math.inf, results)
        )
    return Audit("x", {}, (target,), tuple(heads), refused=refused, left_out=left_out)


R, W, U, UNBOUNDED = Verdict.RULED_OUT, Verdict.WITNESSED, Verdict.UNRESOLVED, Verdict.UNBOUNDED


@pytest.mark.parametrize(
    ("audit", "arguments", "code"),
    [
        (hand_made(R, W, U), (), 0),
        (hand_made(R, W, U), ("--fail-on", "ruled_out"), 1),
        (hand_made(R, W, U), ("--fail-on", "Ruled-Out"), 1),
        (hand_made(W, W), ("--fail-on", "ruled_out"), 0),
        (hand_made(W, U), ("--fail-on", "ruled_out", "--fail-on", "unresolved"), 1),
        (hand_made(W), ("--fail-on", "ruled_out,witnessed"), 1),
        (hand_made(R, UNBOUNDED), (), 3),
        (hand_made(R, UNBOUNDED), ("--fail-on", "ruled_out"), 3),
        (hand_made(R, refused=(Refused("a", "b"),)), (), 3),
        (hand_made(), (), 3),
        (hand_made(R, left_out=((8192, "positions end at 4K"),)), (), 0),
        (hand_made(R, left_out=((8192, "positions end at 4K"),)), ("--length", "4K,8K"), 3),
    ],
)
def test_exit_codes(
    run, monkeypatch: pytest.MonkeyPatch, audit: Audit, arguments: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr(commands, "_audit", lambda *_: audit)
    assert run("check", "x", *arguments).code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ArgumentError("why"), 2),
        (errors.CheckpointError("why"), 2),
        (errors.UnsafeFileError("why"), 2),
        (errors.OutputError("why"), 2),
        (errors.UnsupportedError("why"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_are_one_line_and_have_their_code(
    run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "_audit", fail)
    result = run("check", "x")
    assert (result.code, result.out) == (code, "")
    assert result.err.strip() == f"error: {str(error) or 'interrupted'}"


def test_a_bug_is_not_dressed_up_as_an_error(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "_audit", fail)
    with pytest.raises(ZeroDivisionError):
        run("check", "x")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check",), "one checkpoint or two weight files"),
        (("check", "a", "b", "c"), "Got 3 paths"),
        (("check", DEMO, "--length", "0"), "'--length'"),
        (("check", DEMO, "--length", "-5"), "'--length'"),
        (("check", DEMO, "--length", "4K,banana"), "'banana'"),
        (("check", DEMO, "--target", "1"), "--target"),
        (("check", DEMO, "--target", "nan"), "--target"),
        (("check", DEMO, "--target", "half"), "--target"),
        (("check", DEMO, "--sink-tokens", "-1"), "--sink-tokens"),
        (("check", DEMO, "--layers", "5-3"), "a range must rise"),
        (("check", DEMO, "--layers", "x"), "0,3-5"),
        (("check", DEMO, "--layers", "99"), "99"),
        (("check", DEMO, "--heads", "99"), "99"),
        (("check", DEMO, "--heads", ""), "--heads"),
        (("check", DEMO, "--offsets", "some"), "--offsets"),
        (("check", DEMO, "--budget", "3"), "--offsets exact"),
        (("check", DEMO, "--offsets", "exact", "--budget", "0"), "--budget"),
        (("check", DEMO, "--fail-on", "bad"), "ruled_out"),
        (("check", DEMO, "--json", "-", "--csv", "-"), "cannot both be -"),
        (("check", DEMO, "--json", "out", "--csv", "./out"), "two files"),
        (("check", DEMO, "--input-norm", "1"), "two weight files"),
        (("check", DEMO, "--rope", "1e4"), "two weight files"),
        (("check", "a", "b", "--layers", "0"), "one layer"),
        (("check", "demo:none"), "headwise"),
        (("check", "no/such\nplace"), "no/such"),
        (("check", DEMO, "--no-such-option"), "--no-such-option"),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_bad_usage_is_one_line_and_exits_with_2(
    run, arguments: tuple[str, ...], words: str
) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", result.err), result.err
    assert words in result.err


def test_no_command_shows_help_and_exits_with_2(run) -> None:
    result = run()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: dispersion")


# Pairs of weight files


def test_a_pair_of_weight_files_is_checked(run, pair: tuple[str, str]) -> None:
    result = run("check", *pair, "--query-heads", "4", "--input-norm", "5", "--json", "-")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert [(h["head"], h["kv_head"]) for h in report["heads"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    query, key = (np.load(path).astype(np.float64) for path in pair)
    for head in report["heads"]:
        rows = slice(8 * head["head"], 8 * head["head"] + 8)
        keys = slice(8 * head["kv_head"], 8 * head["kv_head"] + 8)
        sigma = np.linalg.svd(query[rows].T @ key[keys], compute_uv=False)[0]
        # T9: without rotation the spread is 2 * scale * R^2 * sigma_max, attained.
        assert head["spread"]["upper"] == pytest.approx(2 * 25 * sigma / math.sqrt(8), rel=1e-9)


def test_a_pair_without_an_input_norm_is_unbounded(run, pair: tuple[str, str]) -> None:
    result = run("check", *pair, "--query-heads", "4")
    assert result.code == 3
    assert "4 heads unbounded" in result.out
    assert "--input-norm" in result.out


def test_scale_multiplies_the_spread_and_rope_changes_it(run, pair: tuple[str, str]) -> None:
    def spread(*options: str) -> float:
        arguments = ("--query-heads", "4", "--key-heads", "2", "--input-norm", "5", "--json", "-")
        return json.loads(run("check", *pair, *arguments, *options).out)["heads"][0]["spread"][
            "upper"
        ]

    plain = spread()
    assert spread("--scale", "1") == pytest.approx(plain * math.sqrt(8), rel=1e-9)
    # Theory T10: phases can only add to what the unrotated pair reaches.
    assert spread("--rope", "10000") > plain


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--query-heads", "5"), "divide the rows"),
        (("--query-heads", "1"), "head_dim = 32"),
        (("--query-heads", "2"), "head_dim = 16|multiple"),
        (("--query-heads", "4", "--key-heads", "3"), "head_dim = 8"),
        (("--query-heads", "4", "--scale", "-1"), "--scale"),
        (("--query-heads", "4", "--rope", "0"), "--rope"),
        (("--query-heads", "4", "--input-norm", "-1"), "input norm"),
        (("--query-heads", "4", "--input-norm", "inf"), "input norm"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(run, pair, options: tuple[str, ...], words: str) -> None:
    result = run("check", *pair, *options)
    if options == ("--query-heads", "2"):
        assert result.code == 3, "16 rows per head and one key head do fit"
        return
    assert (result.code, result.out) == (2, "")
    assert re.search(words, result.err)


def test_a_vector_and_an_archive_of_two_are_no_weight_files(run, pair, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones(4))
    np.savez(tmp_path / "two.npz", a=np.ones((2, 2)), b=np.ones((2, 2)))
    for name, words in (("v.npy", "matrix"), ("two.npz", "exactly one array")):
        result = run("check", pair[0], str(tmp_path / name))
        assert result.code == 2
        assert words in result.err


def test_a_pickled_weight_file_is_refused(run, pair, tmp_path: Path) -> None:
    path = tmp_path / "k.pt"
    path.write_bytes(b"PK\x03\x04")
    result = run("check", pair[0], str(path))
    assert result.code == 2
    assert "pickle" in result.err


# Help, families, version, start-up


def test_families_come_from_the_registry(run) -> None:
    from dispersion.architectures import families

    result = run("families")
    assert result.code == 0
    words = set(re.split(r"[\s,]+", result.out))
    for family in families():
        assert family.notes.split()[0] in result.out
        assert set(family.model_types) <= words


def test_help_shows_every_option_and_an_example(run) -> None:
    for command in ((), ("check",), ("families",)):
        result = run(*command, "--help")
        assert result.code == 0
        assert "dispersion check demo:headwise" in result.out or command == ("families",)
        assert "Example" in result.out
        assert "\\b" not in result.out
        assert all(len(line) <= 80 for line in result.out.splitlines())
    text = run("check", "--help").out
    for parameter in cli.commands["check"].params:
        assert all(name in text for name in parameter.opts if name.startswith("--"))


def test_version(run) -> None:
    assert run("--version").out == f"dispersion {version('dispersion')}\n"


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="latin-1",
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["check", "--help"], ["prove", "--help"], ["check"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    result = python(
        "import sys; from dispersion.cli import main; main(" + repr(arguments) + ");"
        "heavy = {'numpy', 'scipy', 'jax', 'sympy', 'matplotlib', 'torch', 'flint', 'rich'};"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    assert result.stdout.splitlines()[-1] == "heavy: []", result.stdout + result.stderr


def test_a_check_loads_the_family_it_needs_and_no_other() -> None:
    result = python(
        "import sys; from dispersion.cli import main\n"
        "try: main(['check', 'demo:headwise', '--jobs', '1'])\n"
        "except SystemExit: pass\n"
        "seen = {m.rpartition('.')[2] for m in sys.modules if '.architectures.' in m}\n"
        "print(sorted({'qwen3', 'mistral', 'whisper'} & seen), 'scipy.optimize' in sys.modules)"
    )
    assert result.stdout.splitlines()[-1] == "['qwen3'] False", result.stdout + result.stderr


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dispersion", "check", "demo:no-such"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: ")


def test_a_closed_pipe_is_quiet_and_keeps_the_exit_code() -> None:
    code = (
        "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1);"
        "from dispersion.cli import main;"
        f"sys.exit(main(['check', {DEMO!r}, '--fail-on', 'ruled_out']))"
    )
    result = python(code)
    assert (result.returncode, result.stderr) == (1, "")


def test_output_survives_a_stream_that_cannot_write_every_character() -> None:
    code = "import sys; from dispersion.cli import main; sys.exit(main(['check', 'demo:plain']))"
    result = python(code, PYTHONIOENCODING="latin-1")
    assert result.returncode == 0, result.stderr
    assert "(2?head_dim)" in result.stdout, "latin-1 has no root sign"


def test_colour_follows_the_terminal_and_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert commands._style().colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not commands._style().colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not commands._style().colour


README = Path(__file__).parents[1] / "README.md"


def test_the_readme_shows_what_is_printed(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = run("check", DEMO).out.splitlines()
    shown = README.read_text("utf-8").split(f"$ dispersion check {DEMO}\n")[1].splitlines()
    assert [line.removeprefix("    ") for line in shown[: len(printed)]] == printed


def test_the_python_in_the_readme_runs() -> None:
    failed, ran = doctest.testfile(str(README), module_relative=False)
    assert failed == 0
    assert ran > 10


# Lengths the model cannot have, exact offsets, progress

BERT = str(Path(__file__).parent / "data" / "bert")


def test_default_lengths_past_learned_positions_are_left_out_and_said_so(run) -> None:
    result = run("check", BERT)
    assert result.code == 0
    assert "Left out: 4K, 16K, 64K, 256K, 1M: the model has learned positions for 32" in result.out
    report = json.loads(run("check", BERT, "--json", "-").out)
    assert [each["length"] for each in report["left_out"]][::4] == [4096, 1048576]


def test_asking_for_lengths_past_learned_positions_is_incomplete(run) -> None:
    some = run("check", BERT, "--length", "16,64")
    assert (some.code, "Left out: 64: " in some.out) == (3, True)
    none = run("check", BERT, "--length", "64")
    assert (none.code, "Left out: 64: " in none.out) == (3, True)


def test_exact_offsets_never_allow_more_than_free_ones(run) -> None:
    arguments = ("check", "demo:plain", "--length", "32", "--json", "-")
    free = json.loads(run(*arguments).out)["heads"]
    result = run(*arguments, "--offsets", "exact")
    assert result.err.startswith("note: exact offsets: about ")
    for loose, tight in zip(free, json.loads(result.out)["heads"], strict=True):
        assert tight["spread_kind"] == "exact"
        assert tight["spread"]["upper"] < loose["spread"]["upper"]


def test_exact_offsets_past_the_budget_say_so(run) -> None:
    arguments = ("--length", "4K", "--offsets", "exact", "--budget", "1e-9", "--quiet")
    result = run("check", "demo:plain", *arguments)
    assert (result.code, result.err) == (0, "")
    assert "Note (4 heads): exact offsets at 4096 tokens did not fit the time budget" in " ".join(
        result.out.split()
    )


def test_the_help_states_the_default_budget(run) -> None:
    from dispersion.offsets import DEFAULT_BUDGET

    text = " ".join(run("check", "--help").out.split())
    assert f"past it heads get the free bound. Default: {DEFAULT_BUDGET:g}." in text


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("options", "shown"), [((), True), (("--quiet",), False)])
def test_progress_is_for_terminals_and_not_for_quiet(options: tuple[str, ...], shown: bool) -> None:
    import pty

    ours, theirs = pty.openpty()
    arguments = ["check", DEMO, *options]
    code = f"import sys; from dispersion.cli import main; sys.exit(main({arguments!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=theirs,
        timeout=120,
        env={**os.environ, "TERM": "xterm"},
        check=False,
    )
    os.set_blocking(ours, False)
    try:
        progress = os.read(ours, 100_000)
    except BlockingIOError:
        progress = b""
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert (b"layers" in progress) == shown
    assert shown or progress == b""


def shell(command: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -c 'import sys; from dispersion.cli import main; sys.exit(main())'"
    return subprocess.run(
        ["bash", "-c", command.replace("dispersion", program, 1)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize(
    "command", ["check demo:plain --length 8", "families", "--help", "plan --head-dim 8"]
)
def test_a_full_standard_output_is_an_error_and_no_verdict(command: str) -> None:
    done = shell(f"dispersion {command} > /dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: standard output cannot be written")


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_closed_streams_do_not_lose_files(closed: str, tmp_path) -> None:
    target = tmp_path / "out.json"
    done = shell(f"dispersion check demo:plain --length 8 --json {target} {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(target.read_text())["summary"]["heads"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo:plain", "demo:headwise"], "two arguments are weight files"),
        ([""], "CHECKPOINT must name a file or folder"),
        (["demo:plain", "--offsets", "exact", "--budget", "nan"], "--budget"),
        (["demo:plain", "--length", "8", "--sink-tokens", "9"], "--sink-tokens must not exceed"),
        (["demo:plain", "--retrieval", "any", "--sink-tokens", "2"], "retrieval 'one'"),
    ],
)
def test_arguments_that_make_no_sense_together(run, arguments: list[str], message: str) -> None:
    result = run("check", *arguments)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert message in result.err


def test_shares_next_to_0_and_1_are_printed_in_full(run) -> None:
    assert "99.999999999999%" in run("check", DEMO, "--target", "0.99999999999999").out
    assert "1e-298%" in run("check", DEMO, "--target", "1e-300").out


def test_heads_nearly_limited_show_their_ceilings(run) -> None:
    out = run("check", "demo:headwise", "--length", "16,1K").out
    assert "rule nothing out" not in " ".join(out.split())
    assert "ceiling at 1K" in out


def test_narrow_terminals_keep_the_layer(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = run("check", "demo:headwise", "--length", "4K").out
    assert "layer  head" in out
