package extproc

import "github.com/go-json-experiment/json/jsontext"

// splice puts a string in place of the value at a span, and leaves every other byte
// as it is. It returns a new body.
func splice(body []byte, at span, value string) []byte {
	out := make([]byte, 0, len(body)+len(value)+len(`""`))
	out = append(out, body[:at.from]...)
	out, _ = jsontext.AppendQuote(out, value) // what is no UTF-8 is replaced; no fleet file has it
	return append(out, body[at.to:]...)
}
