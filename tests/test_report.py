import csv
import io
import json
import math
import os
import re
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion.enclosure import Enclosure
from dispersion.errors import OutputError
from dispersion.report.csv_report import COLUMNS, audit_to_csv
from dispersion.report.json_report import audit_to_dict, audit_to_json, json_schema
from dispersion.report.layout import Style, clean
from dispersion.report.rounding import (
    print_ceiling,
    print_largest_length,
    print_range,
    round_down,
    round_up,
)
from dispersion.report.terminal import render
from dispersion.report.writing import OutputFile
from dispersion.results import Audit, Refused, Skipped
from dispersion.verdict import HeadResult, Result, Target, Verdict

LENGTHS = (4096, 1048576)
finite = st.floats(allow_nan=False, allow_infinity=False)


def make_head(
    layer: int,
    head: int,
    spread: float,
    *,
    targets: tuple[Target, ...] = tuple(Target(n) for n in LENGTHS),
    window: int | None = None,
    notes: tuple[str, ...] = (),
) -> HeadResult:
    """A head whose ceilings follow from its spread; witnesses reach 99 % of each ceiling."""
    results = []
    for target in targets:
        n = min(target.length, window or target.length)
        upper = 1.0 if math.isinf(spread) else 1 / (1 + (n - 1) * math.exp(-spread))
        lower = 0.0 if math.isinf(spread) else upper * 0.99
        if math.isinf(spread):
            verdict = Verdict.UNBOUNDED
        elif upper < target.coefficient:
            verdict = Verdict.RULED_OUT
        elif lower >= target.coefficient:
            verdict = Verdict.WITNESSED
        else:
            verdict = Verdict.UNRESOLVED
        results.append(Result(target, Enclosure(lower, upper), verdict))
    p = targets[0].coefficient
    largest = math.floor(1 + math.exp(spread) * (1 - p) / p) if spread < 600 else math.inf
    return HeadResult(
        module=f"model.layers.{layer}.self_attn",
        layer=layer,
        head=head,
        kv_head=head // 2,
        spread=Enclosure(0.0 if math.isinf(spread) else spread * 0.9, spread),
        paper_spread=2 * spread,
        window=window,
        cap="nothing" if math.isinf(spread) else "headwise QK norm",
        largest_length=math.inf if window else largest,
        results=tuple(results),
        notes=notes,
    )


def make_audit(*spreads: float, **changes: object) -> Audit:
    """An audit of layers of two heads with these spreads."""
    values: dict[str, object] = {
        "source": "model",
        "model": {
            "model_type": "qwen3",
            "layers": 2,
            "query_heads": 2,
            "key_heads": 1,
            "head_dim": 16,
            "qk_norm": "headwise",
        },
        "targets": tuple(Target(n) for n in LENGTHS),
        "heads": tuple(make_head(i // 2, i % 2, spread) for i, spread in enumerate(spreads)),
        "skipped": (
            Skipped("model.layers.*.mlp.up_proj.weight", "feed-forward", 2),
            Skipped("model.norm.weight", "final norm"),
        ),
        "provenance": {"version": "1.2.3"},
    }
    return Audit(**{**values, **changes})  # type: ignore[arg-type]


# Rounding


def exact(printed: str) -> Decimal:
    return Decimal(printed.replace(",", ""))


@given(finite, st.integers(1, 17))
def test_upper_bounds_are_printed_up_and_lower_bounds_down(value: float, digits: int) -> None:
    up, down = exact(round_up(value, digits)), exact(round_down(value, digits))
    assert down <= Decimal(value) <= up
    # Tight: one unit in the last of `digits` significant digits at most.
    unit = Decimal(10) ** (Decimal(value).adjusted() - digits + 1) if value else 0
    assert up - Decimal(value) < unit or up == Decimal(value)
    assert Decimal(value) - down < unit or down == Decimal(value)


@given(st.floats(0, 1), st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_a_printed_ceiling_stays_on_its_side_of_the_target(upper: float, target: float) -> None:
    printed = float(print_ceiling(upper, target))
    assert printed >= upper
    assert (printed < target) == (upper < target)


@given(finite, finite)
def test_a_printed_range_contains_the_range(one: float, other: float) -> None:
    lower, upper = min(one, other), max(one, other)
    low, high = print_range(lower, upper).split("..")
    assert exact(low) <= Decimal(lower)
    assert Decimal(upper) <= exact(high)


@given(st.one_of(st.integers(1, 10**7), st.floats(1, 1e300)))
def test_a_printed_largest_length_hides_no_length(length: float) -> None:
    printed = print_largest_length(length)
    if printed == ">2^53":
        assert length > 2**53
    else:
        assert exact(printed) >= math.floor(length)


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0, "0", "0"),
        (1.0, "1.000", "1.000"),
        (0.40199073877, "0.4020", "0.4019"),
        (13.8629, "13.87", "13.86"),
        (1851.2, "1,852", "1,851"),
        (123456.7, "123,457", "123,456"),
        (2.1234e-7, "2.124e-7", "2.123e-7"),
        (math.inf, "inf", "inf"),
    ],
)
def test_how_numbers_look(value: float, up: str, down: str) -> None:
    assert (round_up(value), round_down(value)) == (up, down)


def test_nan_is_never_printed() -> None:
    with pytest.raises(ValueError, match="never NaN"):
        round_up(math.nan)


# JSON


AUDITS = [
    make_audit(8.0, 8.5, 9.0, 20.0),
    make_audit(),
    make_audit(math.inf, 8.0),
    make_audit(
        8.0,
        refused=(Refused("b", "unknown tensor"), Refused("a", "unknown tensor")),
        left_out=((4194304, "learned positions end at 1M"),),
        model={"rope": {"theta": math.nan, "factor": math.inf}, "types": ("a", "b")},
    ),
]


@pytest.mark.parametrize("audit", AUDITS)
def test_json_satisfies_the_shipped_schema(audit: Audit) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    text = audit_to_json(audit)
    assert "NaN" not in text
    assert "Infinity" not in text
    jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("key", ["schema", "targets", "heads", "skipped", "refused", "summary"])
def test_the_schema_misses_no_key(key: str) -> None:
    report = audit_to_dict(AUDITS[0])
    del report[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, json_schema(), jsonschema.Draft202012Validator)


def test_every_key_written_is_described_by_the_schema() -> None:
    schema = json_schema()
    report = audit_to_dict(AUDITS[0])
    assert set(report) == set(schema["properties"])
    assert set(report["heads"][0]) == set(schema["$defs"]["head"]["properties"])
    assert set(report["summary"]) == set(schema["properties"]["summary"]["properties"])


def test_json_numbers_are_the_certified_ones_in_full() -> None:
    audit = make_audit(8.123456789012345)
    head = json.loads(audit_to_json(audit))["heads"][0]
    assert head["spread"]["upper"] == audit.heads[0].spread.upper
    assert head["results"][1]["ceiling"]["upper"] == audit.heads[0].results[1].ceiling.upper
    assert head["results"][1]["verdict"] == "ruled_out"


def test_infinity_is_a_string_and_nan_in_a_config_is_null() -> None:
    report = json.loads(audit_to_json(AUDITS[3]))
    assert report["model"]["rope"] == {"theta": None, "factor": "inf"}
    assert json.loads(audit_to_json(AUDITS[2]))["heads"][0]["spread"]["upper"] == "inf"


def test_json_is_sorted_and_the_same_each_time() -> None:
    audit = make_audit(8.0, 9.0, 10.0, refused=AUDITS[3].refused)
    mixed = make_audit(refused=audit.refused[::-1], heads=audit.heads[::-1])
    assert audit_to_json(audit) == audit_to_json(mixed)


def test_the_summary_counts() -> None:
    summary = audit_to_dict(make_audit(8.0, 20.0, math.inf))["summary"]
    assert summary["complete"] is False
    assert (summary["layers"], summary["heads"], summary["skipped"]) == (2, 3, 3)
    last = summary["verdicts"][-1]
    assert (last["ruled_out"], last["witnessed"], last["unbounded"]) == (1, 1, 1)


# CSV


def test_csv_has_one_row_per_head_and_target() -> None:
    audit = make_audit(8.0, math.inf, 20.0, source='odd, "name"')
    rows = list(csv.DictReader(io.StringIO(audit_to_csv(audit))))
    assert len(rows) == 3 * len(LENGTHS)
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["source"] == 'odd, "name"'
    assert float(rows[1]["ceiling_upper"]) == audit.heads[0].results[1].ceiling.upper
    assert rows[2]["spread_upper"] == rows[2]["largest_length"] == "inf"
    assert [row["verdict"] for row in rows[-2:]] == ["witnessed", "witnessed"]


def test_the_csv_header_is_documented() -> None:
    import dispersion.report.csv_report as module

    words = re.findall(r"\w+", module.__doc__ or "")
    assert set(COLUMNS) <= set(words)


# The terminal


def test_the_answer_comes_first() -> None:
    lines = render(make_audit(8.0, 8.0, 20.0, 20.0)).splitlines()
    assert lines[0] == ("model  qwen3, 2 layers × 2 heads (1 key), head_dim 16, headwise QK norm")
    assert lines[2] == "Can a head put 50% on one token?  (4 heads)"
    assert lines[3].split()[:4] == ["length", "cannot", "can", "unknown"]
    assert lines[4].split()[:4] == ["4K", "2", "2", "-"]
    assert lines[7].startswith("2 heads stop at 2,981 tokens.")
    assert lines[8].startswith("2 heads stop at 4.86e+8 tokens: no input reaches 50%")


def test_targets_that_differ_get_columns() -> None:
    targets = (Target(4096, 0.5), Target(4096, 0.9, sink_tokens=4))
    heads = (make_head(0, 0, 8.0, targets=targets),)
    lines = render(make_audit(heads=heads, targets=targets)).splitlines()
    assert lines[2] == "Can a head put the target on the sink tokens together?  (1 head)"
    assert lines[3].split()[:3] == ["length", "target", "sinks"]
    assert [line.split()[:3] for line in lines[4:6]] == [["4K", "50%", "0"], ["4K", "90%", "4"]]


def test_one_question_is_asked_in_full() -> None:
    targets = (Target(4096, 0.125, sink_tokens=3),)
    audit = make_audit(heads=(make_head(0, 0, 8.0, targets=targets),), targets=targets)
    assert "Can a head put 12.5% on 3 sink tokens together?" in render(audit)


def test_not_ruled_out_is_never_called_reachable() -> None:
    text = " ".join(render(make_audit(8.32)).split())
    assert "not ruled out does not mean reachable" in text
    assert re.search(r"4K - - 1 ", text), "a head that is neither proved nor reached is unknown"


def test_weights_that_rule_nothing_out_are_said_in_words() -> None:
    text = " ".join(render(make_audit(270.0, 1850.0, 400.0, 500.0)).split())
    assert "no head is limited by its weights" in text
    assert "its certified spread is 270.0 to 1,850 logits" in text
    assert "50% at 1M needs only 13.86" in text
    assert "The weights rule nothing out." in text
    assert "Only a cap on spreads below 13.86 logits would bind there" in text
    # head_dim 16: 2 * sqrt(16) = 8 logits, and 1 + e^8 = 2981.9
    assert "would: at head_dim 16 it allows 8.000 logits (2√head_dim), enough up to 2,981" in text
    assert "ceiling at" not in text, "a column of ones says nothing"


def test_the_unit_gain_example_is_the_bound_of_such_a_head() -> None:
    from dispersion import rigor
    from dispersion.head import Head
    from dispersion.norms import qk_norm_ball
    from dispersion.report.wording import unit_gain_spread
    from dispersion.spread import spread_bound

    for head_dim in (16, 64, 80):
        ball = qk_norm_ball(None, kind="rms", head_dim=head_dim)
        scale = rigor.quotient(1, rigor.sqrt_enclosure(head_dim))
        bound = spread_bound(Head(ball, ball, scale)).spread
        assert unit_gain_spread(head_dim) == pytest.approx(bound, rel=1e-9)


def test_weights_that_rule_something_out_are_not_called_harmless() -> None:
    assert "rule nothing out" not in render(make_audit(8.0, 1850.0))


def test_many_stopping_lengths_are_summarised() -> None:
    text = " ".join(render(make_audit(*(8 + i / 10 for i in range(10)))).split())
    assert "10 heads stop between 2,981 and 7,332 tokens (half of them by 4,448)" in text


def test_unbounded_heads_are_counted_apart() -> None:
    text = " ".join(render(make_audit(8.0, math.inf)).split())
    assert "1 head unbounded: no norm caps what enters it" in text
    assert "length cannot can unknown unbounded" in text


def test_what_has_no_answer_is_listed_with_reasons() -> None:
    text = render(AUDITS[3])
    assert "Refused: 2 items could not be checked\n  2 unknown tensor: b, a\n" in text
    assert "Skipped: 3 tensors that attention logits do not need\n" in text
    assert "  2 feed-forward: model.layers.*.mlp.up_proj.weight\n" in text
    assert "Left out: 4M: learned positions end at 1M\n" in text


def test_long_lists_of_names_are_cut() -> None:
    refused = tuple(Refused(f"layer.{i}", "why") for i in range(30))
    text = render(make_audit(8.0, refused=refused))
    assert "  30 why: layer.0, layer.1 and 28 more\n" in text


def test_notes_say_how_many_heads_they_concern() -> None:
    heads = tuple(make_head(0, i, 8.0, notes=("the budget ran out",)) for i in range(3))
    assert "Note (3 heads): the budget ran out\n" in render(make_audit(heads=heads))


def test_an_audit_without_heads_says_so() -> None:
    assert "No head could be checked." in render(make_audit())


def test_few_heads_are_shown_one_by_one_and_many_by_layer() -> None:
    assert "By head:" in render(make_audit(*[8.0] * 16))
    assert "By layer:" in render(make_audit(*[8.0] * 17))
    assert "By head:" in render(make_audit(*[8.0] * 17), per_head=True)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("audit", AUDITS)
def test_lines_fit_the_width(audit: Audit, width: int) -> None:
    for line in render(audit, width=width).splitlines():
        # The columns that are never dropped need 60.
        assert len(line) <= max(width, 60), line


def test_windows_get_a_column_where_they_differ_and_a_sentence_where_not() -> None:
    some = tuple(make_head(i, 0, 8.0, window=512 if i else None) for i in range(2))
    every = tuple(make_head(i, 0, 8.0, window=512) for i in range(2))
    sentence = "1 head is not stopped at any length up to 2^53, 1 of them within a window."
    assert sentence in " ".join(render(make_audit(heads=some)).split())
    assert re.search(r"layer +head +window ", render(make_audit(heads=some)))
    assert "A query sees 512 tokens." in " ".join(render(make_audit(heads=every)).split())


@pytest.mark.parametrize("audit", AUDITS)
def test_plain_text_has_no_terminal_codes_and_coloured_text_says_the_same(audit: Audit) -> None:
    plain, coloured = render(audit), render(audit, style=Style(colour=True))
    assert "\x1b" not in plain
    assert "\x1b[1m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_hostile_names_cannot_drive_the_terminal() -> None:
    evil = "\x1b[2J\nfake\r\u202e"
    audit = make_audit(8.0, source=evil, skipped=(Skipped(evil, evil),), model={"model_type": evil})
    text = render(audit)
    assert not set(text) & {"\x1b", "\r", "\u202e"}
    assert clean(evil) == r"\x1b[2J\nfake\r\u202e"


def test_printed_ceilings_are_never_below_the_certified_ones() -> None:
    for spread in (7.0, 7.7, 8.3176, 8.0000001):
        audit = make_audit(spread)
        answer = [line.split() for line in render(audit).splitlines()[4:6]]
        for cells, result in zip(answer, audit.heads[0].results, strict=True):
            assert float(cells[4]) >= result.ceiling.upper


# Files


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with OutputFile(path) as output:
        assert not path.exists()
        output.write("hällo\n")
    assert path.read_bytes() == "hällo\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_behind_when_the_computation_fails(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), OutputFile(path):
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"), OutputFile(path) as output:
        output.write("after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["missing/out.json", ".", "nul\0.json"])
def test_what_cannot_be_written_shows_before_the_computation(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"^output '.*") as caught, OutputFile(tmp_path / name):
        pytest.fail("entered")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_link_keeps_pointing_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("before")
    real.chmod(0o640)
    link.symlink_to(real)
    with OutputFile(link) as output:
        output.write("after")
    assert link.is_symlink()
    assert real.read_text() == "after"
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_and_not_replaced() -> None:
    with OutputFile(os.devnull) as output:
        output.write("text")
    assert Path(os.devnull).is_char_device()
