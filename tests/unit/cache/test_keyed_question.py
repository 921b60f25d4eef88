"""Questions that are equal, and questions that are not."""

from __future__ import annotations

import unicodedata

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.keyed_question import keyed
from services.runtime import question_key
from services.runtime.question_key import normalized

USER, SYSTEM = chat_pb2.ROLE_USER, chat_pb2.ROLE_SYSTEM
text = st.text(st.characters(codec="utf-8"), max_size=40)


def complete() -> cache_pb2.Question:
    """A question with every field set."""
    message = chat_pb2.Message(
        role=SYSTEM,
        content="Be brief.",
        parts=[chat_pb2.Part(text="At most a word.")],
        tool_calls=[chat_pb2.ToolCall(id="1", name="time", arguments="{}")],
        tool_call_id="0",
        documents=[chat_pb2.Document(place="messages.0.content.0", begin=1, end=2)],
        pictures=[chat_pb2.Picture(index=0, begin=1, end=2)],
    )
    return cache_pb2.Question(
        tenant="acme",
        model_class="fast",
        messages=[message, chat_pb2.Message(role=USER, content="Why?")],
        sampling=chat_pb2.Sampling(
            temperature=0.5,
            top_p=0.9,
            max_tokens=64,
            stop=["END"],
            seed=7,
            frequency_penalty=0.5,
            presence_penalty=0.5,
            logit_bias=[chat_pb2.LogitBias(token=1, bias=2)],
            top_logprobs=3,
            top_k=40,
            min_p=0.25,
            repetition_penalty=1.5,
            min_tokens=2,
            ignore_eos=True,
            stop_token_ids=[9],
        ),
        response_format=chat_pb2.ResponseFormat(regex="[a-z]+"),
        attachments=["sha256:1"],
        category="prices",
        exact_only=True,
        ignore_case=True,
    )


def changes(message: Message, path: str = "") -> list[str]:
    """The path of every field of a message, however deep."""
    found = []
    for field in message.DESCRIPTOR.fields:
        here = f"{path}.{field.name}".lstrip(".")
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            found.append(here)
        elif field.is_repeated:
            found += changes(getattr(message, field.name)[0], f"{here}.0")
        else:
            found += changes(getattr(message, field.name), here)
    return found


def change(message: Message, path: str) -> None:
    """Set the field at `path` to something else."""
    *parents, name = path.split(".")
    for parent in parents:
        message = message[int(parent)] if parent.isdigit() else getattr(message, parent)
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        values = getattr(message, name)
        values.append("another" if field.type == FieldDescriptor.TYPE_STRING else 1)
    elif field.type == FieldDescriptor.TYPE_STRING:
        setattr(message, name, "another")
    elif field.type == FieldDescriptor.TYPE_BYTES:
        setattr(message, name, b"another")
    elif field.type == FieldDescriptor.TYPE_BOOL:
        setattr(message, name, not getattr(message, name))
    elif field.type == FieldDescriptor.TYPE_ENUM:
        setattr(message, name, chat_pb2.ROLE_ASSISTANT)
    else:
        setattr(message, name, getattr(message, name) + 1)


@pytest.mark.parametrize("path", changes(complete()))
def test_a_question_that_differs_in_any_field_has_another_key(path: str) -> None:
    other = complete()
    change(other, path)
    assert keyed(other).key != keyed(complete()).key


@pytest.mark.parametrize("path", [*changes(complete()), "messages.1.role"])
def test_only_the_text_of_the_last_turn_leaves_the_partition_as_it_is(path: str) -> None:
    other = complete()
    change(other, path)
    assert keyed(other).partition != keyed(complete()).partition
    other = complete()
    other.messages[-1].content = "When?"
    assert keyed(other).partition == keyed(complete()).partition


def test_a_field_this_version_does_not_know_changes_the_key() -> None:
    unknown_field = bytes([0xFA, 0x3F, 1, 65])  # number 1023, one byte
    newer = cache_pb2.Question.FromString(complete().SerializeToString() + unknown_field)
    assert keyed(newer).key != keyed(complete()).key


@given(text, text, text, text)
def test_no_text_can_move_from_one_field_to_the_next(a: str, b: str, c: str, d: str) -> None:
    first = cache_pb2.Question(tenant=a, model_class=b, messages=[chat_pb2.Message(role=USER, content="x")])
    second = cache_pb2.Question(tenant=c, model_class=d, messages=[chat_pb2.Message(role=USER, content="x")])
    assert (keyed(first).key == keyed(second).key) == ((a, b) == (c, d))


@given(text)
def test_the_same_characters_typed_differently_are_one_question(content: str) -> None:
    decomposed = complete()
    decomposed.messages[-1].content = unicodedata.normalize("NFD", content)
    composed = complete()
    composed.messages[-1].content = unicodedata.normalize("NFC", content)
    assert keyed(decomposed) == keyed(composed)


@given(text)
def test_normalizing_twice_is_normalizing_once(content: str) -> None:
    assert normalized(normalized(content)) == normalized(content)


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        ("  Why?  \n", "Why?"),
        ("\n \n    return x\n    pass\t", "    return x\n    pass"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("Who is in the US?", "Who is in the US?"),
        ("What  is\u00a0the \u3000 capital?", "What is the capital?"),
        ("Don't  you  know it (at  all)?", "Don't you know it (at all)?"),
        ('What is len("a  b")?', 'What is len("a  b")?'),
        ("What is len('a  b')?", "What is len('a  b')?"),
        ("What does `a  b` do?", "What does `a  b` do?"),
        ("Match /a  b/ with it", "Match /a  b/ with it"),
        ("a  | b", "a  | b"),
        ("a\tb  c", "a\tb  c"),
        ("\tWhy  not?", "Why not?"),
        ("Why does 'a  b' differ", "Why does 'a  b' differ"),
        ("'tis  so", "'tis  so"),
        ("Is Whitespace  read?", "Is Whitespace  read?"),
        ("How many spaces are in a  b?", "How many spaces are in a  b?"),
        ("How many characters has a  b?", "How many characters has a  b?"),
        ("SHA-256 of a  b", "SHA-256 of a  b"),
        ("Repeat after me: a  b", "Repeat after me: a  b"),
        ("Is a:  1 equal to a=  1?", "Is a:  1 equal to a=  1?"),
        ("「a  b」は何ですか", "「a  b」は何ですか"),
        ("a  b 中有几个空格?", "a  b 中有几个空格?"),
        ("Wie viele Leerzeichen hat a  b?", "Wie viele Leerzeichen hat a  b?"),
        ("if x:\n    a  = 1\n    return a", "if x:\n    a  = 1\n    return a"),
        ("First.  Second.\nThird.", "First.  Second.\nThird."),
        ("a  " * 700, ("a  " * 700).rstrip()),
        ("a  " * 682, ("a " * 682).rstrip()),
    ],
)
def test_white_space_goes_only_where_it_means_nothing(typed: str, normal: str) -> None:
    assert normalized(typed) == normal


def test_an_empty_message_says_no_more_than_none() -> None:
    bare = cache_pb2.Question(tenant="acme", messages=[chat_pb2.Message(role=USER, content="Why?")])
    empty = cache_pb2.Question()
    empty.CopyFrom(bare)
    empty.sampling.SetInParent()
    empty.response_format.SetInParent()
    assert keyed(empty) == keyed(bare)


def test_an_explicit_zero_is_not_the_default() -> None:
    bare = cache_pb2.Question(tenant="acme", messages=[chat_pb2.Message(role=USER, content="Why?")])
    greedy = cache_pb2.Question()
    greedy.CopyFrom(bare)
    greedy.sampling.temperature = 0
    assert keyed(greedy).key != keyed(bare).key


def test_keying_does_not_change_the_question() -> None:
    question = complete()
    question.messages[-1].content = "  Why? "
    keyed(question)
    assert question.messages[-1].content == "  Why? "


def with_case(content: str, *, ignored: bool) -> cache_pb2.Question:
    question = complete()
    question.messages[-1].content, question.ignore_case = content, ignored
    return question


def test_case_counts_unless_the_question_says_that_it_does_not() -> None:
    one, other = "Who lives in PARIS?", "who lives in Paris?"
    assert keyed(with_case(one, ignored=False)).key != keyed(with_case(other, ignored=False)).key
    ignoring = keyed(with_case(one, ignored=True))
    assert ignoring.key == keyed(with_case(other, ignored=True)).key
    assert ignoring.key != keyed(with_case(other, ignored=False)).key
    assert ignoring.asked == one  # the text that is embedded keeps its case


def test_letters_of_another_word_are_no_case() -> None:
    moderate, masses = "Darf man Alkohol in Maßen trinken?", "Darf man Alkohol in Massen trinken?"
    assert keyed(with_case(moderate, ignored=True)).key != keyed(with_case(masses, ignored=True)).key


@pytest.mark.parametrize("code", ["`X` or `x`?", "X\nY", 'print("X")', "a[X]"])
def test_case_counts_in_code_always(code: str) -> None:
    assert keyed(with_case(code, ignored=True)).key != keyed(with_case(code.lower(), ignored=True)).key


def test_case_of_what_others_than_the_user_say_counts_always() -> None:
    shouted = with_case("Why?", ignored=True)
    shouted.messages[0].content = shouted.messages[0].content.upper()
    assert keyed(shouted).key != keyed(with_case("Why?", ignored=True)).key


@given(text, st.booleans())
def test_the_gateway_and_the_cache_have_one_key_for_a_question(content: str, ignored: bool) -> None:
    """The gateway sends what it has normalized."""
    asked = with_case(content, ignored=ignored)
    cached = keyed(asked)
    question_key.normalize(asked)
    assert question_key.digest(asked).hex() == cached.key == keyed(asked).key


def test_keys_are_the_same_in_every_release() -> None:
    """If this fails after an upgrade of protobuf, every stored answer is missed once: say so in the release notes."""
    question = complete()
    for name in ("parts", "tool_calls", "tool_call_id", "documents", "pictures"):  # came later
        question.messages[0].ClearField(name)
    question.category, question.exact_only, question.ignore_case = "", False, False
    sampling = question.sampling
    for field in sampling.DESCRIPTOR.fields:
        if field.number > chat_pb2.Sampling.SEED_FIELD_NUMBER:  # came later
            sampling.ClearField(field.name)
    assert keyed(question).key == "8bd075f625edcec7d60c12ca949c70047025508ee5dcd9a1165802149baa28dc"
