"""Does for a test what it asks: a JSON object a line in, one a line out.

{"do": NAME, "mark": TEXT, …} calls the function NAME with the rest. The answer is
what that returns, or the error that it raises, with every request that the client
sent for it, retries included.
"""

import hashlib
import json
import sys
import time

sent = []  # since the last answer


def note(request):
    """Is the hook of the HTTP client that sees each request before it is sent."""
    body = request.read()
    sent.append(
        {
            "sha256": hashlib.sha256(body).hexdigest(),
            "retry": int(request.headers.get("x-stainless-retry-count", -1)),
            "at": time.time(),
        }
    )


def say(answer):
    print(json.dumps(answer), flush=True)


def run(functions, errors):
    """Serves until the end of the input. Errors are those of the client's own."""
    say({})
    for line in sys.stdin:
        order = json.loads(line)
        function = functions[order.pop("do")]
        sent.clear()
        try:
            answer = function(**order)
        except errors as e:
            answer = {"error": type(e).__name__, "status": getattr(e, "status_code", 0), "message": str(e)}
        say({**answer, "sent": sent})
