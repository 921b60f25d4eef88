"""Several rankings make one."""

from services.cache.collections.reading import fused


def test_the_first_of_all_rankings_scores_1_and_the_first_of_one_at_most_half() -> None:
    scores = dict(fused([[1, 2, 3], [1, 4, 2]]))
    assert scores[1] == 1
    assert list(scores) == [1, 2, 4, 3]
    assert scores[4] < 0.5
    assert fused([[7]]) == [(7, 1.0)]
    assert fused([]) == []
