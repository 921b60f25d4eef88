// `ai` with `@ai-sdk/openai-compatible`.
"use strict";

const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { embedMany, generateText, jsonSchema, Output, stepCountIs, streamText, tool } = require("ai");
const { baseURL, picture, refused, tell, QUESTION, ANOTHER, BUSY, CITY } = require("./checks.js");

const options = { name: "hedgerow", apiKey: "any", baseURL, includeUsage: true, supportsStructuredOutputs: true };
const provider = createOpenAICompatible(options);
const model = provider("m");
const weather = tool({ inputSchema: jsonSchema(CITY), execute: async () => "sunny" });
const first = { model, maxRetries: 0 };
const steps = { tools: { weather }, stopWhen: stepCountIs(3), prompt: "How is the weather?" };

tell({
  async whole() {
    const answer = await generateText({ ...first, prompt: QUESTION });
    return [answer.text, answer.usage.totalTokens, answer.finishReason];
  },
  async streamed() {
    const stream = streamText({ ...first, prompt: ANOTHER });
    let said = "";
    for await (const text of stream.textStream) said += text;
    return [said, (await stream.usage).totalTokens, await stream.finishReason];
  },
  async tools() {
    const answer = await generateText({ ...first, ...steps });
    return [answer.text, answer.steps.length, answer.steps[0].toolCalls[0].input];
  },
  async tools_streamed() {
    const stream = streamText({ ...first, ...steps });
    return [await stream.text, (await stream.steps).length];
  },
  async schema() {
    const output = Output.object({ schema: jsonSchema(CITY) });
    return (await generateText({ ...first, prompt: QUESTION, output })).output;
  },
  async picture() {
    const content = [
      { type: "text", text: "?" },
      { type: "image", image: picture, mediaType: "image/png" },
    ];
    return (await generateText({ ...first, messages: [{ role: "user", content }] })).text;
  },
  async completed() {
    return (await generateText({ model: provider.completionModel("m"), prompt: QUESTION })).text;
  },
  async embeddings() {
    return (await embedMany({ model: provider.embeddingModel("auto"), values: ["one", "two"] })).embeddings;
  },
  unknown_model: () => refused(() => generateText({ ...first, model: provider("gpt-9"), prompt: QUESTION })),
  bad_input: () => refused(() => generateText({ ...first, prompt: QUESTION, temperature: 3 })),
  async unknown_model_streamed() {
    const stream = streamText({ ...first, model: provider("gpt-9"), prompt: QUESTION, onError() {} });
    for await (const part of stream.fullStream) if (part.type === "error") return [part.error.name, part.error.statusCode];
  },
  async retried() {
    return (await generateText({ model, prompt: `${BUSY} Really?`, maxRetries: 2 })).text;
  },
  busy: () => refused(() => generateText({ ...first, prompt: BUSY })),
});
