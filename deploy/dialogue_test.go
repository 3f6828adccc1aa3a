package deploy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"weir/deploy/stage"
)

// dialogue is a conversation whose every turn sends all that was said before, the
// engine's own answers included.
type dialogue struct {
	name     string
	number   int
	rng      *rand.Rand
	messages []said
}

type said struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// newDialogue begins a conversation. Its name comes first, so that nothing of another
// one can be found in its stead.
func newDialogue(name string, number int) *dialogue {
	d := &dialogue{name: name, number: number, rng: rand.New(rand.NewPCG(7, uint64(number)))}
	d.say("system", fmt.Sprintf("%s: %s", name, d.words(120)))
	return d
}

func (d *dialogue) say(role, content string) { d.messages = append(d.messages, said{role, content}) }

// words are as long and as varied as a prompt's.
func (d *dialogue) words(n int) string {
	var text strings.Builder
	for range n {
		for range 3 + d.rng.IntN(5) {
			text.WriteByte(byte('a' + d.rng.IntN(26)))
		}
		text.WriteByte(' ')
	}
	return text.String()
}

// next is the request of the next turn. Half of the conversations have a session
// header, and half of each half stream.
func (d *dialogue) next(url string) stage.Call {
	d.say("user", d.words(40))
	stream := d.number&2 != 0
	request := map[string]any{"model": "tiny", "messages": d.messages, "max_tokens": 40, "stream": stream}
	if stream {
		request["stream_options"] = map[string]bool{"include_usage": true}
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic("dialogue: " + err.Error()) // strings always marshal
	}
	c := stage.Call{URL: url, Body: body, Headers: map[string]string{}}
	if d.number&1 != 0 {
		c.Headers["x-session-id"] = d.name
	}
	return c
}

// usage is what an engine says it has done for requests, in tokens.
type usage struct{ Prompt, Cached int }

func (u *usage) add(v usage) { u.Prompt, u.Cached = u.Prompt+v.Prompt, u.Cached+v.Cached }

func (u usage) hitRate() float64 { return float64(u.Cached) / float64(u.Prompt) }

// heard takes in the answer, streamed or whole.
func (d *dialogue) heard(r *stage.Reply) (usage, error) {
	if !r.OK() {
		return usage{}, fmt.Errorf("%s: %v", d.name, r)
	}
	var answer strings.Builder
	var u *usage
	for line := range strings.Lines(string(r.Body)) {
		data := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		text, used, err := readChunk(data)
		if err != nil {
			return usage{}, fmt.Errorf("%s: %w in %q", d.name, err, data)
		}
		answer.WriteString(text)
		if used != nil {
			u = used
		}
	}
	if u == nil || answer.Len() == 0 {
		return usage{}, fmt.Errorf("%s: no usage or no answer in %v", d.name, r)
	}
	d.say("assistant", answer.String())
	return *u, nil
}

// readChunk reads one event of a stream, or a whole answer.
func readChunk(data string) (text string, u *usage, err error) {
	var c struct {
		Choices []struct{ Delta, Message said }
		Usage   *struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return "", nil, err
	}
	for _, choice := range c.Choices {
		text += choice.Delta.Content + choice.Message.Content
	}
	if c.Usage != nil {
		u = &usage{c.Usage.Prompt, c.Usage.Details.Cached}
	}
	return text, u, nil
}
