// Is openai-node, driven by a test: a JSON object a line in, one a line out, as
// runner.py has it.
"use strict";

const { createHash } = require("node:crypto");
const { createInterface } = require("node:readline");

const say = (answer) => console.log(JSON.stringify(answer));

let OpenAI;
try {
  OpenAI = require("openai");
} catch (e) {
  say({ missing: e.message.split("\n")[0] });
  process.exit();
}

let sent = []; // since the last answer

function note(url, init) {
  sent.push({
    sha256: createHash("sha256").update(init.body ?? "").digest("hex"),
    retry: Number(new Headers(init.headers).get("x-stainless-retry-count") ?? -1),
    at: Date.now() / 1000,
  });
  return fetch(url, init);
}

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", fetch: note, maxRetries: 0 });
const streams = {};
const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, days: { type: "integer" } },
        required: ["city", "days"],
        additionalProperties: false,
      },
      strict: true,
    },
  },
];

const marked = (mark, more) => ({ headers: { "x-test-id": mark }, ...more });
const usage = (u) => ({ prompt: u.prompt_tokens, output: u.completion_tokens });

function question(model, mark, tokens) {
  return {
    model,
    messages: [
      { role: "system", content: "You are terse." },
      { role: "user", content: "conversation " + mark },
    ],
    max_tokens: tokens,
  };
}

function called(r) {
  const call = r.choices[0].message.tool_calls[0];
  return {
    tool: call.function.name,
    arguments: call.function.parsed_arguments,
    finish: r.choices[0].finish_reason,
    ...usage(r.usage),
  };
}

const responded = (r) => ({
  text: r.output_text,
  finish: r.incomplete_details?.reason ?? r.status,
  prompt: r.usage.input_tokens,
  output: r.usage.output_tokens,
});

const functions = {
  async chat({ mark, model, tokens, retries }) {
    const r = await client.chat.completions.create(question(model, mark, tokens), marked(mark, { maxRetries: retries ?? 0 }));
    return { text: r.choices[0].message.content, finish: r.choices[0].finish_reason, ...usage(r.usage) };
  },

  async stream({ mark, model, tokens }) {
    const asked = { ...question(model, mark, tokens), stream: true, stream_options: { include_usage: true } };
    const answer = { text: "", pieces: 0 };
    for await (const chunk of await client.chat.completions.create(asked, marked(mark))) {
      if (chunk.usage) Object.assign(answer, usage(chunk.usage));
      for (const { delta, finish_reason } of chunk.choices) {
        answer.finish = finish_reason ?? answer.finish;
        if (delta.content) {
          answer.text += delta.content;
          answer.pieces++;
        }
      }
    }
    return answer;
  },

  async tool({ mark, model, tokens }) {
    const asked = { ...question(model, mark, tokens), tools, tool_choice: "required" };
    return called(await client.chat.completions.parse(asked, marked(mark)));
  },

  async tool_stream({ mark, model, tokens }) {
    const asked = { ...question(model, mark, tokens), tools, tool_choice: "required", stream_options: { include_usage: true } };
    return called(await client.chat.completions.stream(asked, marked(mark)).finalChatCompletion());
  },

  async respond({ mark, model, tokens }) {
    const asked = { model, input: "conversation " + mark, max_output_tokens: tokens };
    return responded(await client.responses.create(asked, marked(mark)));
  },

  async respond_stream({ mark, model, tokens }) {
    const asked = { model, input: "conversation " + mark, max_output_tokens: tokens };
    let pieces = 0;
    const stream = client.responses.stream(asked, marked(mark)).on("response.output_text.delta", () => pieces++);
    return { ...responded(await stream.finalResponse()), pieces };
  },

  async embed({ mark, model, inputs }) {
    const r = await client.embeddings.create({ model, input: inputs }, marked(mark));
    return { vectors: r.data.map((item) => item.embedding.length), prompt: r.usage.prompt_tokens };
  },

  async models({ mark }) {
    const list = await client.models.list(marked(mark));
    return { models: list.data.map((m) => m.id) };
  },

  // Holds a conversation that sends all earlier turns again.
  async talk({ mark, model, turns, headers }) {
    const asked = question(model, mark, 8);
    for (let turn = 0; turn < turns; turn++) {
      const r = await client.chat.completions.create(asked, { headers: { "x-test-id": mark, ...headers } });
      asked.messages.push(r.choices[0].message, { role: "user", content: `and then ${turn}` });
    }
    return {};
  },

  async begin({ mark, model, tokens }) {
    const stream = await client.chat.completions.create({ ...question(model, mark, tokens), stream: true }, marked(mark));
    streams[mark] = stream;
    await stream[Symbol.asyncIterator]().next();
    return {};
  },

  async close({ mark }) {
    streams[mark].controller.abort();
    delete streams[mark];
    return {};
  },
};

async function run() {
  say({});
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...order } = JSON.parse(line);
    sent = [];
    let answer;
    try {
      answer = await functions[name](order);
    } catch (e) {
      if (!(e instanceof OpenAI.OpenAIError)) throw e;
      answer = { error: e.constructor.name, status: e.status ?? 0, message: e.message };
    }
    say({ ...answer, sent });
  }
}

run();
