package main

// manual stands above the flags in --help.
const manual = `mock-engine answers as a GPU engine would, without a GPU.

APIs, whole or streamed:
  POST /v1/chat/completions   POST /v1/completions   POST /v1/responses
  POST /v1/messages           POST /v1/embeddings
  GET, DELETE /v1/responses/ID, with /input_items, POST with /cancel, where it was made
  GET  /v1/models             GET  /health           GET  /metrics (as vLLM's)

An answer is made-up text, as long as the request allows (without a limit: 16
tokens) or as --answer says. A tool is called when the request's tool_choice asks
for it or its last user message has "` + toolMarker + `".

The first token comes after --ttft, rising to --ttft-full at utilisation 1 and on
beyond it; utilisation is the rate of arrivals over --capacity. With
--reference-prompt, time and work follow the tokens of the prompt that are not in
the KV cache: a follow-up is cheap where its conversation was before.

GET /faults shows what is wrong with the engine, PUT /faults sets it, as JSON:
  {"unhealthy":true}                   /health answers 503
  {"errorRate":0.1,"errorStatus":500}  a tenth of the requests fail at once
  {"busyAbove":8,"busyStatus":429,"retryAfter":1}  more than 8 at once are refused
  {"slow":3}                           every wait is three times as long
  {"hang":true}                        headers come, tokens never
  {"mute":true}                        nothing is answered, not even /health
  {"refuse":true}                      connections are reset
  {"stallAfter":5}                     after 5 tokens nothing more comes
  {"cutAfter":5}                       after 5 tokens the connection is reset
  {"freeze":true}                      /metrics says the same for ever
The set replaces the one before; {} is an engine that is well.

The same seed and requests give the same texts, jitter and faults.

Flags:
`
