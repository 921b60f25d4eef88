// `openai` for Node.
"use strict";

const { OpenAI, toFile } = require("openai");
const { baseURL, picture, recording, refused, tell, QUESTION, ANOTHER, BUSY, CITY } = require("./checks.js");

const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const asked = (content, more = {}) => ({ model: "m", messages: [{ role: "user", content }], ...more });
const schema = { type: "json_schema", json_schema: { name: "city", strict: true, schema: CITY } };
const parameters = CITY;
const tools = [{ type: "function", function: { name: "weather", parameters } }];
const chat = (...given) => client.chat.completions.create(asked(...given));
const text = async (answer) => (await answer).choices[0].message.content;

tell({
  async whole() {
    const answer = await chat(QUESTION);
    return [answer.choices[0].message.content, answer.usage.total_tokens, answer.choices[0].finish_reason];
  },
  async streamed() {
    const options = { stream: true, stream_options: { include_usage: true } };
    let said = "";
    let total = 0;
    for await (const chunk of await chat(ANOTHER, options)) {
      said += chunk.choices[0]?.delta.content ?? "";
      total = chunk.usage?.total_tokens ?? total;
    }
    return [said, total];
  },
  async left() {
    const stream = await chat(QUESTION, { stream: true });
    for await (const _ of stream) break; // which aborts the request
    return stream.controller.signal.aborted;
  },
  async tools() {
    const runner = client.chat.completions.runTools(
      asked("How is the weather?", {
        tools: [{ type: "function", function: { name: "weather", parameters, parse: JSON.parse, function: () => "sunny" } }],
      }),
    );
    return runner.finalContent();
  },
  async tools_streamed() {
    const stream = client.chat.completions.stream(asked("How is the weather?", { tools }));
    const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
    return [call.function.name, JSON.parse(call.function.arguments)];
  },
  async schema() {
    return JSON.parse(await text(chat(QUESTION, { response_format: schema })));
  },
  picture: () =>
    text(chat([{ type: "text", text: "?" }, { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } }])),
  recording: () => text(chat([{ type: "input_audio", input_audio: { data: recording, format: "wav" } }])),
  async completed() {
    return (await client.completions.create({ model: "m", prompt: QUESTION })).choices[0].text;
  },
  async responses() {
    return (await client.responses.create({ model: "m", input: QUESTION })).output_text;
  },
  async responses_streamed() {
    const stream = client.responses.stream({ model: "m", input: QUESTION });
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    return [(await stream.finalResponse()).output_text, kinds.at(-1)];
  },
  async embeddings() {
    const reply = await client.embeddings.create({ model: "auto", input: ["one", "two"] });
    return reply.data.map((each) => each.embedding);
  },
  async transcription() {
    const file = () => toFile(Buffer.from(recording, "base64"), "speech.wav");
    return (await client.audio.transcriptions.create({ model: "whisper-1", file: await file() })).text;
  },
  async transcription_streamed() {
    const file = await toFile(Buffer.from(recording, "base64"), "speech.wav");
    const kinds = [];
    for await (const event of await client.audio.transcriptions.create({ model: "whisper-1", file, stream: true })) {
      kinds.push(event.type);
    }
    return kinds;
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    return names;
  },
  unknown_model: () => refused(() => chat(QUESTION, { model: "gpt-9" })),
  bad_input: () => refused(() => chat(QUESTION, { temperature: 3 })),
  retried: () => text(client.chat.completions.create(asked(`${BUSY} Really?`), { maxRetries: 2 })),
  busy: () => refused(() => chat(BUSY)),
});
