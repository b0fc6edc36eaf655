import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion.errors import ArgumentError
from dispersion.lengths import (
    DEFAULT_LENGTHS,
    LONGEST,
    format_length,
    parse_length,
    parse_lengths,
)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1", 1),
        ("32768", 32768),
        ("32K", 32768),
        ("128k", 131072),
        ("1M", 1048576),
        ("2m", 2097152),
        (" 4K ", 4096),
        ("007", 7),
        (str(LONGEST), LONGEST),
    ],
)
def test_lengths_are_read(text: str, length: int) -> None:
    assert parse_length(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0K",
        "-1",
        "-4K",
        "+4",
        "1.5K",
        "4 K",
        "4KB",
        "K",
        "1e6",
        "nan",
        "1_000",
        "٣",
        "²",
        str(LONGEST + 1),
        f"{LONGEST}K",
        "9" * 5000,
    ],
)
def test_what_is_no_length_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^length must .* Got '.{0,40}'\.$") as caught:
        parse_length(text)
    assert "\n" not in str(caught.value)


def test_several_lengths_keep_their_order() -> None:
    assert parse_lengths("1M,4K, 100") == (1048576, 4096, 100)


@pytest.mark.parametrize("text", [",", "4K,", ",4K", "4K,,8K"])
def test_an_empty_part_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_lengths(text)


def test_the_default_lengths_rise_by_fours_from_4k_to_1m() -> None:
    assert [format_length(n) for n in DEFAULT_LENGTHS] == ["4K", "16K", "64K", "256K", "1M"]


@given(st.integers(1, LONGEST))
def test_a_printed_length_reads_back(length: int) -> None:
    assert parse_length(format_length(length).replace(",", "")) == length


@given(st.integers(1, 16383))
def test_whole_kilotokens_are_printed_short(count: int) -> None:
    expected = f"{count}K" if count % 1024 else f"{count // 1024}M"
    assert format_length(count * 1024) == expected
