// What the Node scripts here share.
"use strict";

const [baseURL, picture, recording] = process.argv.slice(2); // the last two: base64

// The type and the status of the error that `ask` must throw, and the field that it names.
async function refused(ask) {
  try {
    return ["answered", await ask()];
  } catch (error) {
    const { name, constructor, status, statusCode, param, data } = error;
    return [name === "Error" ? constructor.name : name, status ?? statusCode, param ?? data?.error?.param ?? null];
  }
}

// Do one after the other; print, as JSON, what each returned, by its name.
async function tell(checks) {
  const seen = {};
  for (const [name, check] of Object.entries(checks)) {
    seen[name] = await check().catch((error) => String(error.stack));
  }
  console.log(JSON.stringify(seen));
}

const QUESTION = "What is the capital of France?";
const ANOTHER = "And which one is it really?"; // what was just answered has no usage: it cost nothing
const BUSY = `Are you busy, ${process.argv[1]}?`; // the model is, the first time that it is asked just this
const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
module.exports = { baseURL, picture, recording, refused, tell, QUESTION, ANOTHER, BUSY, CITY };
