from hypothesis import given
from hypothesis import strategies as st

from dispersion.solving import Turn, turning_point, whole_turning_point


@given(st.floats(2.0**-150, 2.0**150))
def test_a_turning_point_is_enclosed_by_answers(where):
    turn = turning_point(lambda x: x >= where)
    assert turn.no < where <= turn.yes
    assert turn.yes - turn.no <= 2.0**-36 * turn.yes


def test_turning_points_beyond_reach_say_so():
    assert turning_point(lambda x: True).no is None
    assert turning_point(lambda x: False).yes is None


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 1000))
def test_a_whole_turning_point_is_a_pair_of_neighbours(first, more, where):
    last = first + more
    turn = whole_turning_point(lambda x: x >= where, first, last)
    if where <= first:
        assert turn == Turn(None, first)
    elif where > last:
        assert turn == Turn(last, None)
    else:
        assert turn == Turn(where - 1, where)
