"""The llm service as a process of its own, with vLLM and the demo models: answers and their reports."""

from __future__ import annotations

import grpc
import pytest
from tokenizers import Tokenizer

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from tests.integration.vllm_engine.service import (
    ASSISTANT,
    FRANCE,
    START_S,
    STORY,
    USER,
    Service,
    ask,
    begun,
    family,
)
from tests.models import MODELS
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2 * START_S)]
NEVER_DONE = chat_pb2.ResponseFormat(regex="[a-z]{5000}")  # in the tokens there are


async def test_what_was_read_of_a_prompt_is_reused_for_the_same_salt_alone(service: Service) -> None:
    request = ask(f"{'The fox ran through the green wood to the river. ' * 20}{FRANCE}", max_tokens=4)

    async def cached(salt: str) -> int:
        request.cache_salt = salt
        return (await service.answer(request))[1].usage.cached_prompt_tokens

    assert [await cached(salt) for salt in ("a", "b", "")] == [0, 0, 0]
    assert all([await cached(salt) > 100 for salt in ("a", "b", "")])
    assert await service.refusal(llm_pb2.GenerateRequest(messages=request.messages, cache_salt="s" * 65)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "cache_salt",
        "cache_salt: at most 64 characters, got 65",
    )


async def test_a_question_is_answered_with_what_it_cost(service: Service) -> None:
    text, finish = await service.ask(FRANCE)
    assert text == "The capital of France is Paris."
    assert finish.reason == chat_pb2.FINISH_REASON_STOP
    assert finish.HasField("queue_ms")
    usage = finish.usage
    assert 0 < usage.accepted_tokens <= usage.drafted_tokens
    assert usage.prompt_tokens > 0


async def test_a_drawn_answer_is_as_right_as_a_greedy_one_under_speculation(service: Service) -> None:
    for seed in range(5):
        text, finish = await service.ask(FRANCE, temperature=0.7, top_p=0.95, seed=seed)
        assert text == "The capital of France is Paris."
        assert finish.usage.accepted_tokens > 0


async def test_the_same_seed_draws_the_same_answer(service: Service) -> None:
    first, _ = await service.ask(STORY, temperature=1.5, seed=7, max_tokens=40)
    again, _ = await service.ask(STORY, temperature=1.5, seed=7, max_tokens=40)
    other, _ = await service.ask(STORY, temperature=1.5, seed=8, max_tokens=40)
    assert first == again != other


async def test_a_later_turn_sees_the_earlier_ones(service: Service) -> None:
    turns = [(USER, FRANCE), (ASSISTANT, "The capital of France is Paris."), (USER, "What is the capital of Japan?")]
    messages = [chat_pb2.Message(role=role, content=content) for role, content in turns]
    text, finish = await service.answer(
        llm_pb2.GenerateRequest(messages=messages, sampling=chat_pb2.Sampling(temperature=0))
    )
    assert text == "The capital of Japan is Tokyo."
    counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=messages), timeout=30)
    assert counted.tokens == finish.usage.prompt_tokens


async def test_an_answer_goes_on_from_its_beginning_and_only_what_is_new_is_sent(service: Service) -> None:
    request = begun("The capital of France")
    text, finish = await service.answer(request)
    assert text == " is Paris."
    assert finish.reason == chat_pb2.FINISH_REASON_STOP
    whole, whole_finish = await service.ask(FRANCE)
    assert request.prefix + text == whole
    given = finish.usage.prompt_tokens - whole_finish.usage.prompt_tokens
    assert given > 0
    assert finish.usage.completion_tokens == whole_finish.usage.completion_tokens - given


async def test_an_answer_that_was_whole_already_ends_at_once(service: Service) -> None:
    text, finish = await service.answer(begun("The capital of France is Paris."))
    assert (text, finish.reason) == ("", chat_pb2.FINISH_REASON_STOP)


async def test_tokens_that_arrive_together_travel_together(service: Service) -> None:
    replies = [reply async for reply in service.stub.Generate(ask(STORY, max_tokens=100), timeout=60)]
    assert len(replies) < sum(reply.tokens for reply in replies)


async def test_max_tokens_ends_an_answer(service: Service) -> None:
    _, finish = await service.ask(STORY, max_tokens=5)
    assert (finish.reason, finish.usage.completion_tokens) == (chat_pb2.FINISH_REASON_LENGTH, 5)


async def test_an_answer_is_clipped_to_what_the_context_has_left(service: Service) -> None:
    prompt = "hello " * 300
    _, finish = await service.ask(prompt, max_tokens=100_000)
    assert finish.usage.completion_tokens <= 1024 - finish.usage.prompt_tokens


async def test_an_answer_goes_on_behind_its_end_where_that_is_ignored(service: Service) -> None:
    _, finish = await service.ask(FRANCE, max_tokens=40, ignore_eos=True)
    assert (finish.usage.completion_tokens, finish.reason) == (40, chat_pb2.FINISH_REASON_LENGTH)


async def test_an_answer_has_the_fewest_tokens_that_it_may(service: Service) -> None:
    _, finish = await service.ask(FRANCE, min_tokens=30)
    assert finish.usage.completion_tokens >= 30
    # More than the context has left, of which the prompt leaves little: an answer of 1,000 tokens takes 40 s.
    _, capped = await service.ask("hello " * 300, min_tokens=5_000)
    assert capped.reason == chat_pb2.FINISH_REASON_LENGTH
    assert capped.usage.prompt_tokens + capped.usage.completion_tokens == 1024


async def test_a_stop_token_ends_an_answer(service: Service) -> None:
    whole = "The capital of France is Paris."
    tokens = Tokenizer.from_file(str(MODELS / "demo-llm/tokenizer.json")).encode(whole, add_special_tokens=False).ids
    text, finish = await service.ask(FRANCE, stop_token_ids=[tokens[3]])
    assert whole.startswith(text)
    assert (finish.usage.completion_tokens, finish.reason) == (4, chat_pb2.FINISH_REASON_STOP)


async def test_the_likeliest_of_one_token_are_the_greedy_answer_s(service: Service) -> None:
    for seed in range(5):
        text, _ = await service.ask(FRANCE, temperature=2, top_k=1, seed=seed)
        assert text == "The capital of France is Paris."


async def test_a_stop_string_ends_an_answer_and_is_not_part_of_it(service: Service) -> None:
    text, finish = await service.ask(FRANCE, stop=[" is"])
    assert text == "The capital of France"
    assert finish.reason == chat_pb2.FINISH_REASON_STOP


async def test_log_probabilities_are_those_of_the_text(service: Service) -> None:
    replies = [reply async for reply in service.stub.Generate(ask(FRANCE, top_logprobs=2), timeout=60)]
    logprobs = [logprob for reply in replies for logprob in reply.logprobs]
    assert "".join(logprob.token for logprob in logprobs).startswith("The capital of France is Paris.")
    for logprob in logprobs:
        assert len(logprob.top) == 2
        assert 0 >= logprob.top[0].logprob >= logprob.top[1].logprob
        assert logprob.logprob == logprob.top[0].logprob  # greedy
    replies = [reply async for reply in service.stub.Generate(ask(FRANCE, top_logprobs=0), timeout=60)]
    assert [len(logprob.top) for reply in replies for logprob in reply.logprobs] == [0] * len(logprobs)


@pytest.mark.parametrize(
    "penalties", [{"repetition_penalty": 2}, {"frequency_penalty": 2, "presence_penalty": 2}], ids=" ".join
)
async def test_penalties_change_an_answer(service: Service, penalties: dict[str, float]) -> None:
    drawn = {"temperature": 1.9, "seed": 1, "max_tokens": 60}
    plain, _ = await service.ask(STORY, **drawn)
    penalized, _ = await service.ask(STORY, **drawn, **penalties)
    assert penalized != plain


async def test_cancelling_a_call_stops_the_engine(service: Service) -> None:
    call = service.stub.Generate(ask(STORY, NEVER_DONE, max_tokens=512))
    await call.read()
    await until(service.model, holds=lambda model: model.running == 1)  # its scheduler's counts come after the text
    call.cancel()
    await until(lambda: idle(service), 30)
    generated = await service.gauge("vllm:generation_tokens_total")
    text, _ = await service.ask(FRANCE)  # the scheduler counts again when it next runs
    assert text == "The capital of France is Paris."
    assert await service.gauge("vllm:generation_tokens_total") - generated < 100


async def test_the_model_is_described(service: Service) -> None:
    model = await service.model()
    assert (model.name, model.engine, model.speculation) == ("demo-llm", "vllm", "draft_model")
    assert (model.context_tokens, model.max_tokens) == (1024, 1023)
    assert model.continues
    offered = [llm_pb2.FEATURE_TOOLS, llm_pb2.FEATURE_LOGPROBS, llm_pb2.FEATURE_CHOICE, llm_pb2.FEATURE_GRAMMAR]
    offered += [llm_pb2.FEATURE_TOP_K, llm_pb2.FEATURE_VLLM_SAMPLING]
    assert list(model.features) == offered
    assert model.default_sampling == chat_pb2.Sampling(temperature=0)


async def test_the_engine_s_own_metrics_are_on_the_services_page(service: Service) -> None:
    assert await service.gauge("vllm:num_requests_running") >= 0
    assert await service.gauge("vllm:spec_decode_num_accepted_tokens_total") > 0


async def test_the_key_value_cache_has_the_configured_memory(service: Service) -> None:
    assert f'kv_cache_memory_bytes="{2**28}"' in await service.page()


async def test_the_engine_runs_its_model_itself(service: Service) -> None:
    titles = [" ".join(process.cmdline()).strip() for process in family(service.process)]
    assert [title for title in titles if title.startswith("VLLM::")] == ["VLLM::EngineCore"]


async def idle(service: Service) -> bool:
    model = await service.model()
    return (model.running, model.waiting) == (0, 0)
