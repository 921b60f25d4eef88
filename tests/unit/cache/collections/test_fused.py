"""Several rankings make one."""

from services.cache.collections.reading import fused


def test_what_is_first_in_all_rankings_has_one_and_what_only_one_has_found_the_half_of_it_at_most() -> None:
    scores = dict(fused([[1, 2, 3], [1, 4, 2]]))
    assert scores[1] == 1
    assert list(scores) == [1, 2, 4, 3]
    assert scores[4] < 0.5
    assert fused([[7]]) == [(7, 1.0)]
    assert fused([]) == []
