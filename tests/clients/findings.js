// What each client for Node sees of a stream that tells what is found: texts, and findings in between.
"use strict";

const { Anthropic } = require("@anthropic-ai/sdk");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { streamText } = require("ai");
const { OpenAI } = require("openai");
const { baseURL, tell } = require("./checks.js");

const headers = { "x-hedgerow-findings": "true", "x-hedgerow-mesh-tools": "weather, news" };
const QUESTION = "What is the weather?";
const messages = [{ role: "user", content: QUESTION }];
const openai = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0, defaultHeaders: headers });
const anthropic = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey: "any", maxRetries: 0, defaultHeaders: headers });
const compatible = createOpenAICompatible({ name: "hedgerow", apiKey: "any", baseURL, headers });

// A text, or what was found; nothing where it is neither, or the whole account.
const put = (seen, text, found) => {
  if (found && !found.trace_id) seen.push(found);
  else if (text) seen.push(text);
};

tell({
  async openai() {
    const seen = [];
    for await (const chunk of await openai.chat.completions.create({ model: "m", messages, stream: true })) {
      put(seen, chunk.choices[0].delta.content, chunk.hedgerow);
    }
    return seen;
  },
  async openai_gathered() {
    const stream = openai.chat.completions.stream({ model: "m", messages });
    return (await stream.finalChatCompletion()).choices[0].message.content;
  },
  async responses() {
    const seen = [];
    const stream = openai.responses.stream({ model: "m", input: QUESTION });
    for await (const event of stream) {
      put(seen, event.type.endsWith("output_text.delta") && event.delta, event.response?.hedgerow);
    }
    return [...seen, (await stream.finalResponse()).output_text];
  },
  async ai() {
    const seen = [];
    const stream = streamText({ model: compatible("m"), maxRetries: 0, includeRawChunks: true, prompt: QUESTION });
    for await (const part of stream.fullStream) {
      put(seen, part.type === "text-delta" && part.text, part.type === "raw" && part.rawValue.hedgerow);
    }
    return [...seen, await stream.finishReason];
  },
  async anthropic() {
    const seen = [];
    const stream = anthropic.messages.stream({ model: "m", max_tokens: 50, messages });
    for await (const event of stream) put(seen, event.delta?.text, event.hedgerow);
    const whole = await stream.finalMessage();
    return [...seen, whole.content[0].text, whole.stop_reason];
  },
});
