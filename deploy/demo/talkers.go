package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

// kind is how a conversation is named.
type kind int

// The kinds, and how the view calls them.
const (
	byHeader kind = iota
	byField
	byBeginning
	kinds
)

func (k kind) String() string {
	return [...]string{"by a header", "by a body field", "by its beginning"}[k]
}

const (
	turns        = 6
	answerTokens = 4
	think        = 1500 * time.Millisecond // mean time between an answer and the next turn
)

// turn is one request of a conversation, as its client saw it.
type turn struct {
	talk     string
	n        int // 0: the first
	kind     kind
	frontEnd fleet.FrontEndID
	class    fleet.ClassID
	reply    stage.Reply
	prompt   int // tokens, as the engine counted them
	cached   int
	engine   fleet.EngineID // where it arrived, by the engines' journals; empty: in none
	pool     fleet.PoolID
}

func (t *turn) mark() string { return fmt.Sprintf("%s/%d", t.talk, t.n) }

// talk holds one conversation from a turn to its last.
func (d *director) talk(ctx context.Context, client *http.Client, stream fleet.Stream, n, from int) {
	name := fmt.Sprintf("%s-%s-%x-%d", stream.FrontEnd, stream.Class, d.seed, n)
	rng := rand.New(rand.NewPCG(uint64(n), uint64(len(name))))
	model := d.stage.Fleet.Class(stream.Class).Models()[0]
	for i := from; i < turns; i++ {
		if i == from && from > 0 && !rest(ctx, rng) { // one that was under way before
			return
		}
		t := turn{talk: name, n: i, kind: kind((n%int(kinds) + int(kinds)) % int(kinds)), frontEnd: stream.FrontEnd, class: stream.Class}
		t.reply = stage.Do(context.WithoutCancel(ctx), client, stage.Call{
			URL: d.stage.URL(stream.FrontEnd), Body: t.body(model, d.promptBytes), Headers: t.headers(),
		})
		t.prompt, t.cached = usage(t.reply.Body)
		d.add(t)
		if !rest(ctx, rng) {
			return
		}
	}
}

// rest is the time between an answer and the next turn; false means that the demo is
// over.
func rest(ctx context.Context, rng *rand.Rand) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(rng.ExpFloat64() * float64(think))):
		return true
	}
}

func (t *turn) headers() map[string]string {
	headers := map[string]string{"x-test-id": t.mark()}
	if t.kind == byHeader {
		headers["x-session-id"] = t.talk
	}
	return headers
}

// body sends the whole conversation again, as clients do.
func (t *turn) body(model string, promptBytes int) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	system := "Conversation " + t.talk + "." + strings.Repeat(" You are terse.", promptBytes/15)
	messages := []message{{"system", system}, {"user", "hello, I am " + t.talk}}
	for i := range t.n {
		messages = append(messages, message{"assistant", fmt.Sprint("answer ", i)}, message{"user", fmt.Sprint("and then ", i)})
	}
	body := map[string]any{
		"model": model, "messages": messages, "max_tokens": answerTokens, "stream": true,
		"stream_options": map[string]bool{"include_usage": true},
	}
	if t.kind == byField {
		body["prompt_cache_key"] = t.talk
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic("demo: " + err.Error()) // strings always marshal
	}
	return text
}

// usage reads what the engine counted from the last event that says it.
func usage(stream []byte) (prompt, cached int) {
	for line := range strings.Lines(string(stream)) {
		var event struct {
			Usage *struct {
				PromptTokens int `json:"prompt_tokens"`
				Details      struct {
					CachedTokens int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if ok && json.Unmarshal([]byte(data), &event) == nil && event.Usage != nil {
			prompt, cached = event.Usage.PromptTokens, event.Usage.Details.CachedTokens
		}
	}
	return prompt, cached
}
