// `@anthropic-ai/sdk` for Node.
"use strict";

const { Anthropic } = require("@anthropic-ai/sdk");
const { baseURL, picture, refused, tell, QUESTION, BUSY, CITY } = require("./checks.js");

const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey: "any", maxRetries: 0 });
const asked = (content, more = {}) => ({ model: "m", max_tokens: 50, messages: [{ role: "user", content }], ...more });
const tools = [{ name: "weather", input_schema: CITY }];
const text = async (message) => (await message).content[0].text;

tell({
  async whole() {
    const message = await client.messages.create(asked(QUESTION));
    return [message.content[0].text, message.usage.output_tokens, message.stop_reason];
  },
  streamed: () => client.messages.stream(asked(QUESTION)).finalText(),
  async tools() {
    const before = asked("How is the weather?", { tools });
    const message = await client.messages.stream(before).finalMessage();
    const [called] = message.content;
    const result = { role: "user", content: [{ type: "tool_result", tool_use_id: called.id, content: "sunny" }] };
    const messages = [...before.messages, { role: "assistant", content: message.content }, result];
    return [called.name, called.input, await text(client.messages.create({ ...before, messages }))];
  },
  picture() {
    const source = { type: "base64", media_type: "image/png", data: picture };
    return text(client.messages.create(asked([{ type: "image", source }, { type: "text", text: "?" }])));
  },
  async counted() {
    const { model, messages } = asked(QUESTION);
    return (await client.messages.countTokens({ model, messages })).input_tokens;
  },
  unknown_model: () => refused(() => client.messages.create(asked(QUESTION, { model: "claude-x" }))),
  bad_input: () => refused(() => client.messages.create(asked(QUESTION, { temperature: 3 }))),
  retried: () => text(client.messages.create(asked(`${BUSY} Really?`), { maxRetries: 2 })),
  busy: () => refused(() => client.messages.create(asked(BUSY))),
});
