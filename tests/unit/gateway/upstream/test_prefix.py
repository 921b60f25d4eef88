from services.gateway.upstream.prefix import BLOCK_BYTES, Prefixes, blocks, rendezvous

LONG = "You are a careful assistant. " * 40
SALT = "a"


def test_a_prompt_shorter_than_a_block_has_no_prefix():
    assert not blocks(["What is the capital of France?"], SALT)


def test_prompts_that_begin_alike_share_their_first_blocks_and_only_these():
    one, other = blocks([LONG, "a" * BLOCK_BYTES], SALT), blocks([LONG, "b" * BLOCK_BYTES], SALT)
    shared = len(LONG) // BLOCK_BYTES
    assert list(one[:shared]) == list(other[:shared])
    assert not set(one[shared:]) & set(other[shared:])


def test_the_same_block_after_another_beginning_is_another_block():
    same = "s" * BLOCK_BYTES
    assert blocks(["x" * BLOCK_BYTES + same], SALT)[1] != blocks(["y" * BLOCK_BYTES + same], SALT)[1]


def test_where_a_message_ends_counts():
    assert blocks(["a" * 300, "b" * 300], SALT) != blocks(["a" * 299, "a" + "b" * 300], SALT)


def test_prompts_of_different_salts_share_no_block():
    prompts = [blocks([LONG], salt) for salt in ("", "a", "b")]
    assert len({block for prompt in prompts for block in prompt}) == sum(map(len, prompts))


def test_only_the_beginning_of_a_very_long_prompt_is_looked_at():
    assert len(blocks(["x" * 1_000_000], SALT)) == 64


def test_a_replica_matches_what_it_was_sent_from_the_first_block_on():
    sent, known = blocks([LONG, "a" * BLOCK_BYTES], SALT), Prefixes()
    known.sent(sent)
    assert known.matched(sent) == len(sent)
    assert known.matched(blocks([LONG, "b" * BLOCK_BYTES], SALT)) == len(LONG) // BLOCK_BYTES
    assert known.matched(blocks(["Another beginning. " * 40], SALT)) == 0


def test_what_was_sent_longest_ago_is_forgotten_first_and_a_prompts_end_before_its_beginning():
    known, first, second = Prefixes(most_blocks=3), blocks(["1" * 512], SALT), blocks(["2" * 512], SALT)
    known.sent(first)
    known.sent(second)
    assert known.matched(second) == 2
    assert known.matched(first) == 1


def test_a_block_that_nobody_has_is_claimed_by_each_name_differently_and_always_the_same():
    claims = {name: rendezvous(b"block", name) for name in ("a:1", "b:1", "c:1")}
    assert len(set(claims.values())) == 3
    assert claims == {name: rendezvous(b"block", name) for name in claims}
