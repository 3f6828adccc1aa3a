"""Is openai-python, driven by a test: see runner.py."""

import sys

try:
    import openai
except ImportError as e:
    print(f'{{"missing": "{e}"}}', flush=True)
    sys.exit()

import runner

client = openai.OpenAI(
    base_url=sys.argv[1] + "/v1",
    api_key="none",
    http_client=openai.DefaultHttpxClient(event_hooks={"request": [runner.note]}),
)
streams = {}
tools = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


def marked(mark, retries=0):
    return client.with_options(default_headers={"x-test-id": mark}, max_retries=retries)


def question(model, mark, tokens):
    return {
        "model": model,
        "messages": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "conversation " + mark}],
        "max_tokens": tokens,
    }


def usage(u):
    return {"prompt": u.prompt_tokens, "output": u.completion_tokens}


def chat(mark, model, tokens, retries=0):
    r = marked(mark, retries).chat.completions.create(**question(model, mark, tokens))
    return {"text": r.choices[0].message.content, "finish": r.choices[0].finish_reason, **usage(r.usage)}


def stream(mark, model, tokens):
    text, pieces, finish, used = "", 0, None, None
    for chunk in marked(mark).chat.completions.create(
        **question(model, mark, tokens), stream=True, stream_options={"include_usage": True}
    ):
        used = chunk.usage or used
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            if choice.delta.content:
                text, pieces = text + choice.delta.content, pieces + 1
    return {"text": text, "pieces": pieces, "finish": finish, **usage(used)}


def called(r):
    call = r.choices[0].message.tool_calls[0]
    return {"tool": call.function.name, "arguments": call.function.parsed_arguments, "finish": r.choices[0].finish_reason, **usage(r.usage)}


def tool(mark, model, tokens):
    r = marked(mark).chat.completions.parse(**question(model, mark, tokens), tools=tools, tool_choice="required")
    return called(r)


def tool_stream(mark, model, tokens):
    with marked(mark).chat.completions.stream(
        **question(model, mark, tokens), tools=tools, tool_choice="required", stream_options={"include_usage": True}
    ) as s:
        return called(s.get_final_completion())


def responded(r):
    return {
        "text": r.output_text,
        "finish": r.incomplete_details.reason if r.incomplete_details else r.status,
        "prompt": r.usage.input_tokens,
        "output": r.usage.output_tokens,
    }


def respond(mark, model, tokens):
    return responded(marked(mark).responses.create(model=model, input="conversation " + mark, max_output_tokens=tokens))


def respond_stream(mark, model, tokens):
    pieces, last = 0, None
    with marked(mark).responses.stream(model=model, input="conversation " + mark, max_output_tokens=tokens) as s:
        for event in s:
            if event.type == "response.output_text.delta":
                pieces += 1
            if event.type in ("response.completed", "response.incomplete"):
                last = event.response
    return {"pieces": pieces, **responded(last)}


def embed(mark, model, inputs):
    r = marked(mark).embeddings.create(model=model, input=inputs)
    return {"vectors": [len(item.embedding) for item in r.data], "prompt": r.usage.prompt_tokens}


def models(mark):
    return {"models": [m.id for m in marked(mark).models.list()]}


def talk(mark, model, turns, headers=None):
    """Holds a conversation that sends all earlier turns again."""
    q = question(model, mark, 8)
    for turn in range(turns):
        r = marked(mark).chat.completions.create(**q, extra_headers=headers)
        q["messages"] += [r.choices[0].message, {"role": "user", "content": f"and then {turn}"}]
    return {}


def begin(mark, model, tokens):
    streams[mark] = marked(mark).chat.completions.create(**question(model, mark, tokens), stream=True)
    next(streams[mark])
    return {}


def close(mark):
    streams.pop(mark).close()
    return {}


runner.run(
    {f.__name__: f for f in (chat, stream, tool, tool_stream, respond, respond_stream, embed, models, talk, begin, close)},
    openai.OpenAIError,
)
