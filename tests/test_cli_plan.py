import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dispersion.cli import cli, main
from dispersion.planned import PlannedHead
from dispersion.planning import plan_head, plan_length
from dispersion.report.bound_report import bound_schema
from dispersion.report.plan_json import plan_schema, plan_to_dict
from dispersion.report.plan_report import render_plan
from dispersion.schedules import Schedule, parse_schedule
from dispersion.verdict import Target

SHORT = ("plan", "--head-dim", "16", "--length", "4K")


def both(length: int, coefficient: float = 0.5) -> list[Target]:
    return [Target(length, coefficient, retrieval=kind) for kind in ("one", "any")]


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.code = main(arguments)
        self.out, self.err = capsys.readouterr()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    return lambda *arguments: Run(capsys, *arguments)


# plan


def test_the_plan_answers_at_each_length_and_then_says_what_it_takes(run) -> None:
    result = run("plan", "--head-dim", "64", "--length", "4K,1M", "--heads", "32")
    assert result.code == 0
    assert result.err == ""
    text = result.out
    assert text.startswith("Planned head: head_dim 64, headwise QK norm")
    rows = [line.split() for line in text.splitlines()]
    assert ["4K", "1.00", "0.422", "1,815", "0.00783", "any", "token"] in rows
    assert ["1M", "0.895", "0.00174", "1,815", "1.64", "any", "token"] in rows
    assert "at most 2,989 tokens" in " ".join(text.split())
    assert "What 50% at 1M takes" in text
    assert "Headwise or layerwise QK norm, 32 heads" in text
    assert all(len(line) <= 80 for line in text.splitlines())


FIELDS = {
    "gain product, at least": "gain",
    "temperature, at most": "temperature",
    "schedule log:C, C at least": "schedule",
    "head_dim, at least": "head_dim",
    "sigma, at least": "sigma",
}


def printed_needs(text: str) -> dict[str, list[str]]:
    found = {}
    for name in FIELDS:
        for line in text.splitlines():
            if line.strip().startswith(name):
                found[name] = line.strip().removeprefix(name).split()[1:]
    return found


FED_BACK = {
    "plain": ("--head-dim 24 --length 32K --target 0.6", PlannedHead(24), Target(2**15, 0.6)),
    "cap": (
        "--head-dim 48 --length 8K --sink 0 --soft-cap 40 --rank 20",
        PlannedHead(48, sink=0.0, soft_cap=40.0, rank=20),
        Target(2**13),
    ),
    "no norm": (
        "--head-dim 32 --length 64K --norm none --sigma 9",
        PlannedHead(32, norm="none", sigma=9.0),
        Target(2**16),
    ),
}


def ruled_out(head: PlannedHead, field: str, value: float, target: Target) -> list[bool]:
    if field == "schedule":
        changed = replace(head, schedule=Schedule("log", (value,)))
    else:
        changed = replace(head, **{field: int(value) if field == "head_dim" else value})
    row = plan_length(changed, target)
    return [row.one_ruled_out, row.any_ruled_out]


@pytest.mark.parametrize("name", FED_BACK)
def test_printed_answers_fed_back_meet_the_target_and_a_thousandth_less_does_not(
    run, name: str
) -> None:
    words, head, target = FED_BACK[name]
    needs = printed_needs(run("plan", *words.split()).out)
    assert len(needs) == 4
    fed = 0
    for label, values in needs.items():
        for kind, text in enumerate(values):
            if text in ("none", "all"):
                continue
            fed += 1
            value = float(text.replace(",", ""))
            field = FIELDS[label]
            less = value * (1.001 if field == "temperature" else 0.999)
            if field == "head_dim":
                less = value - 1
            assert not ruled_out(head, field, value, target)[kind]
            if field != "head_dim" or less >= (head.rank or 1):
                assert ruled_out(head, field, less, target)[kind]
    assert fed >= 6


@pytest.mark.parametrize("kind", ["one", "any"])
def test_only_what_was_asked_for_is_shown(run, kind: str) -> None:
    text = run(*SHORT, "--retrieval", kind).out
    other = {"one": "any token", "any": "one token"}[kind]
    assert f"{kind} token" in text
    assert f"{other} ≤" not in text
    assert ("capacity" in text) == (kind == "any")


def test_options_reach_the_head(run) -> None:
    result = run(
        *(*SHORT, "--norm", "layerwise", "--heads", "8", "--key-heads", "2"),
        *("--query-gain", "0.5", "--key-gain", "3", "--scale", "0.3", "--soft-cap", "9"),
        *("--sink", "-1", "--window", "2K", "--schedule", "yarn:1K", "--temperature", "1.5"),
        *("--rank", "12", "--target", "0.7", "--json", "-"),
    )
    found = json.loads(result.out)
    head = PlannedHead(
        16,
        norm="layerwise",
        heads=8,
        key_heads=2,
        gain=1.5,
        scale=0.3,
        soft_cap=9.0,
        sink=-1.0,
        window=2048,
        schedule=parse_schedule("yarn:1K"),
        temperature=1.5,
        rank=12,
    )
    assert found == plan_to_dict(plan_head(head, both(4096, 0.7)))
    for key, value in {"heads": 8, "key_heads": 2, "window": 2048, "rank": 12}.items():
        assert found["head"][key] == value


def test_a_spread_is_twice_sigma(run) -> None:
    norm = ("--norm", "none", "--json", "-")
    assert run(*SHORT, "--sigma", "4", *norm).out == run(*SHORT, "--spread", "8", *norm).out


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--norm", "none", "--sigma", "3"),
        ("--gain", "64", "--schedule", "log:0.5"),
        ("--sink", "0", "--soft-cap", "3"),
        ("--heads", "4", "--retrieval", "one"),
        ("--gain", "0"),
        ("--gain", "1e5", "--window", "1K"),
    ],
)
def test_json_satisfies_its_schema(run, options: tuple[str, ...]) -> None:
    schema = plan_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    result = run(*SHORT, *options, "--json", "-")
    assert result.code == 0
    found = json.loads(result.out)
    jsonschema.validate(found, schema)
    for part in ("head", "lengths", "needs"):
        broken = {key: value for key, value in found.items() if key != part}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_json_goes_to_a_file_beside_the_text(run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    result = run(*SHORT, "--json", str(path))
    assert result.out == run(*SHORT).out
    assert json.loads(path.read_text("utf-8"))["schema"] == "dispersion.plan/1"
    failed = run(*SHORT, "--json", str(tmp_path / "none" / "plan.json"))
    assert failed.code == 2
    assert "cannot be written" in failed.err


def test_estimates_are_marked() -> None:
    text = render_plan(plan_head(PlannedHead(8, gain=8.0), both(4096)))
    assert re.search(r"the\s+capacity\s+would\s+be\s+≈", text)
    assert "≈" not in render_plan(plan_head(PlannedHead(8), both(4096)))


def test_a_huge_capacity_is_printed_as_a_power() -> None:
    text = render_plan(plan_head(PlannedHead(256, gain=1e6), [Target(4096, retrieval="any")]))
    assert re.search(r" e\^\d+", text)
    assert "inf" not in text


def test_a_strict_ceiling_under_a_cap_is_printed_as_one() -> None:
    text = render_plan(plan_head(PlannedHead(64, soft_cap=30.0), both(2**17)))
    assert "<0.500" in text


def test_targets_that_differ_are_shown_by_row() -> None:
    text = render_plan(plan_head(PlannedHead(16), [Target(4096, 0.5), Target(4096, 0.9)]))
    assert "Asked for: the target" in text
    assert "What 90% at 4K takes" in text


@pytest.mark.parametrize("width", [40, 60, 200])
def test_text_keeps_to_the_width(width: int) -> None:
    head = PlannedHead(64, heads=8, schedule=parse_schedule("log:0.1"))
    text = render_plan(plan_head(head, [Target(4096), Target(2**20)]), width=width)
    prose = [line for line in text.splitlines() if not line.startswith("  ")]
    assert all(len(line) <= width for line in prose)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--head-dim"),
        (("--head-dim", "0"), "head_dim must be"),
        (("--head-dim", "64", "--norm", "none"), "sigma must be given"),
        (("--head-dim", "64", "--spread", "4"), "sigma goes with norm none"),
        (
            ("--head-dim", "64", "--norm", "none", "--spread", "4", "--sigma", "2"),
            "give one of them",
        ),
        (("--head-dim", "64", "--gain", "1", "--key-gain", "1"), "give one or the others"),
        (("--head-dim", "64", "--schedule", "cosine"), "schedule must be one of"),
        (("--head-dim", "64", "--window", "1K,2K"), "--window takes one length"),
        (("--head-dim", "64", "--target", "1"), "--target"),
        (("--head-dim", "64", "--norm", "layerwise"), "heads is needed"),
    ],
)
def test_bad_plans_are_one_line_and_exit_with_2(run, arguments, words: str) -> None:
    result = run("plan", *arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert words in result.err


# bound


def test_bound_solves_for_what_is_missing(run) -> None:
    text = run("bound", "--length", "32K", "--spread", "10").out
    assert "share of one item is at most         0.40199074  T1" in text
    assert "0.67219440" in text
    assert re.search(r"at least +10\.397177 +T4", run("bound", "--length=32K", "--target=.5").out)
    text = run("bound", "--spread", "10", "--target", "0.5").out
    assert "22,027" in text


@pytest.mark.parametrize(
    ("spread", "word"), [("10", "Ruled out:"), ("11", "Reached:"), ("11,", None)]
)
def test_bound_says_whether_the_target_is_met(run, spread: str, word: str | None) -> None:
    result = run("bound", "--length", "32K", "--target", "0.5", "--spread", spread)
    if word is None:
        assert result.code == 2
        return
    assert result.code == 0
    assert result.out.splitlines()[-1].startswith(word)


def test_bound_rounds_to_the_safe_side(run) -> None:
    def numbers(*arguments: str) -> dict[str, float]:
        text = run("bound", *arguments).out.splitlines()[1:]
        parts = [line.rsplit(None, 2) for line in text if line.startswith("  ")]
        return {name.strip(): float(value.replace(",", "")) for name, value, _ in parts}

    text = numbers("--length", "32K", "--spread", "10")
    exact = {
        each["name"]: each["value"]
        for each in json.loads(run("bound", "--length=32K", "--spread=10", "--json=-").out)[
            "statements"
        ]
    }
    assert text["share of one item is at most"] >= exact["ceiling"]
    assert text["share of one item is at least"] <= exact["floor"]
    assert text["entropy (nats) is at least"] <= exact["entropy"]
    assert text["entropy (nats) is at least"] == pytest.approx(exact["entropy"], rel=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        ("--length", "32K", "--spread", "10"),
        ("--length", "32K", "--target", "0.5", "--soft-cap", "5"),
        ("--norm", "12", "--target", "0.5", "--temperature", "0.5"),
        ("--length", "4", "--target", "0.2", "--spread", "0"),
        ("--length", "4K", "--spread", "inf"),
        ("--length", "4K", "--spread", "3", "--sink-tokens", "4", "--target", "0.1"),
    ],
)
def test_bound_json_satisfies_its_schema(run, options: tuple[str, ...]) -> None:
    schema = bound_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    result = run("bound", *options, "--json", "-")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    jsonschema.validate(found, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found, "verdict": "perhaps"}, schema)
    text = run("bound", *options).out
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "at least two"),
        (("--length", "4K"), "at least two"),
        (("--length", "4K,8K", "--spread", "1"), "one length"),
        (("--length", "4", "--items", "5", "--spread", "1"), "items must not exceed length"),
        (("--spread", "2", "--norm", "3", "--items", "2", "--target", ".5"), "one item"),
        (("--length", "4", "--spread", "-1"), "spread must be 0 or more"),
        (("--length", "4", "--spread", "1", "--items", "0"), "--items"),
    ],
)
def test_bad_bounds_are_one_line_and_exit_with_2(run, arguments, words: str) -> None:
    result = run("bound", *arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert words in result.err


@pytest.mark.parametrize("command", ["bound", "plan"])
def test_help_shows_every_option_and_examples(run, command: str) -> None:
    text = run(command, "--help").out
    assert "Examples: dispersion " + command in text
    assert all(len(line) <= 80 for line in text.splitlines())
    for parameter in cli.commands[command].params:
        assert all(name in text for name in parameter.opts if name.startswith("--"))
    examples = re.findall(rf"dispersion ({command} -.+)", text)
    assert len(examples) >= 3
    for example in examples:
        assert run(*example.split()).code == 0


@pytest.mark.parametrize("command", ["plan", "bound"])
def test_the_readme_shows_what_is_printed(run, monkeypatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    ((arguments, shown),) = re.findall(
        rf"    \$ dispersion {command} (.+)\n((?:    .*\n|\n)+)", text
    )
    printed = run(command, *arguments.split()).out.splitlines()
    lines = [line.removeprefix("    ") for line in shown.splitlines()]
    assert lines[: len(printed)] == printed


@pytest.mark.parametrize("command", ["plan", "bound"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        f"import sys; from dispersion.cli import main; main([{command!r}, '--help']);"
        "print(sorted({'numpy', 'scipy', 'jax', 'flint', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"
