"""Is anthropic-python, driven by a test: see runner.py."""

import sys

try:
    import anthropic
except ImportError as e:
    print(f'{{"missing": "{e}"}}', flush=True)
    sys.exit()

import runner

client = anthropic.Anthropic(
    base_url=sys.argv[1],
    api_key="none",
    http_client=anthropic.DefaultHttpxClient(event_hooks={"request": [runner.note]}),
)
streams = {}
tools = [
    {
        "name": "weather",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    }
]


def marked(mark, retries=0):
    return client.with_options(default_headers={"x-test-id": mark}, max_retries=retries)


def question(model, mark, tokens):
    return {
        "model": model,
        "system": "You are terse.",
        "messages": [{"role": "user", "content": "conversation " + mark}],
        "max_tokens": tokens,
    }


def answered(m):
    return {
        "text": "".join(b.text for b in m.content if b.type == "text"),
        "finish": m.stop_reason,
        "prompt": m.usage.input_tokens + m.usage.cache_read_input_tokens,
        "output": m.usage.output_tokens,
    }


def chat(mark, model, tokens, retries=0):
    return answered(marked(mark, retries).messages.create(**question(model, mark, tokens)))


def stream(mark, model, tokens):
    with marked(mark).messages.stream(**question(model, mark, tokens)) as s:
        pieces = sum(1 for _ in s.text_stream)
        return {"pieces": pieces, **answered(s.get_final_message())}


def called(m):
    call = next(b for b in m.content if b.type == "tool_use")
    return {"tool": call.name, "arguments": call.input, **answered(m)}


def tool(mark, model, tokens):
    return called(marked(mark).messages.create(**question(model, mark, tokens), tools=tools, tool_choice={"type": "any"}))


def tool_stream(mark, model, tokens):
    with marked(mark).messages.stream(**question(model, mark, tokens), tools=tools, tool_choice={"type": "any"}) as s:
        return called(s.get_final_message())


def talk(mark, model, turns, headers=None):
    """Holds a conversation that sends all earlier turns again."""
    q = question(model, mark, 8)
    for turn in range(turns):
        m = marked(mark).messages.create(**q, extra_headers=headers)
        q["messages"] += [{"role": "assistant", "content": m.content}, {"role": "user", "content": f"and then {turn}"}]
    return {}


def begin(mark, model, tokens):
    streams[mark] = marked(mark).messages.create(**question(model, mark, tokens), stream=True)
    next(iter(streams[mark]))
    return {}


def close(mark):
    streams.pop(mark).close()
    return {}


runner.run(
    {f.__name__: f for f in (chat, stream, tool, tool_stream, talk, begin, close)},
    anthropic.AnthropicError,
)
