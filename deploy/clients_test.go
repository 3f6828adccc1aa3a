package deploy

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
)

const (
	clientFleet = "testdata/clients.yaml"
	chatModel   = "llama-3.3-70b"
	embedModel  = "bge-m3"
)

// Clients that others wrote get from Weir what they would from an engine: whole
// answers in all their APIs, byte for byte what they sent to an engine of the
// model, and errors that they know; weir-extproc alive or dead.
func TestClients(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: clientFleet})
	clients := startClients(t, s)
	for _, state := range []string{"alive", "dead"} {
		if state == "dead" {
			check(t, s.Process("extproc-main").Kill())
			check(t, s.Await(t.Context(), "main", false))
		}
		t.Run(state, func(t *testing.T) {
			for _, c := range clients {
				t.Run(c.name, func(t *testing.T) {
					c.await(t)
					visit{t, s, c, state}.all()
				})
			}
			curlVisits(t, s, state)
		})
		if state == "alive" {
			noTimeouts(t, s)
		}
		for _, c := range clients {
			t.Run(state+"/"+c.name+" is refused by an engine", func(t *testing.T) {
				c.await(t)
				visit{t, s, c, state}.refusedOnce()
			})
		}
	}
	noWeirHeaders(t, s)
}

func startClients(t *testing.T, s *stage.Stage) []*client {
	t.Helper()
	clients := make([]*client, len(kinds))
	for i, k := range kinds {
		clients[i] = startClient(t, k, s.URL("main"))
	}
	return clients
}

// visit is a client at a front-end.
type visit struct {
	t     *testing.T
	stage *stage.Stage
	*client
	state string
}

func (v visit) all() {
	v.answers()
	if v.path == "/v1/chat/completions" { // of OpenAI's
		v.responses()
		v.embeddings()
		v.models()
	}
	v.tools()
	v.unknownModel()
	v.talk()
	v.abort()
}

func (v visit) mark(what string) string { return v.name + "-" + v.state + "-" + what }

// ask has the client do something, without retries, and wants no error.
func (v visit) ask(what string, o order) result {
	v.t.Helper()
	o.Do, o.Mark = what, v.mark(what)
	got := v.do(v.t, o)
	if got.Error != "" {
		v.t.Errorf("%s: %s %d %s", what, got.Error, got.Status, got.Message)
	}
	return got
}

func (v visit) answers() {
	v.t.Helper()
	for _, what := range []string{"chat", "stream"} {
		got := v.ask(what, order{Model: chatModel, Tokens: 12})
		v.whole(what, v.path, got)
		if got.Finish != v.cut {
			v.t.Errorf("%s: ended by %q, want %q", what, got.Finish, v.cut)
		}
	}
}

func (v visit) responses() {
	v.t.Helper()
	for _, what := range []string{"respond", "respond_stream"} {
		got := v.ask(what, order{Model: chatModel, Tokens: 12})
		v.whole(what, "/v1/responses", got)
		if got.Finish != "max_output_tokens" {
			v.t.Errorf("%s: ended by %q, want max_output_tokens", what, got.Finish)
		}
	}
}

// whole holds that an answer is what an engine made of exactly what was sent.
func (v visit) whole(what, path string, got result) {
	v.t.Helper()
	if got.Text == "" || got.Prompt == 0 || got.Output != 12 {
		v.t.Errorf("%s: text %q, usage of %d and %d tokens; want text and 12 tokens of output", what, got.Text, got.Prompt, got.Output)
	}
	if strings.HasSuffix(what, "stream") && got.Pieces != 12 {
		v.t.Errorf("%s: %d pieces came, want one for each of 12 tokens", what, got.Pieces)
	}
	v.reached(what, path, chatModel, got)
}

// reached holds that a request reached one engine of the model, and ended there.
func (v visit) reached(what, path, model string, got result) {
	v.t.Helper()
	group := byTest(arrivals(v.t, v.stage))[v.mark(what)]
	if len(group) != 1 || len(got.Sent) != 1 {
		v.t.Errorf("%s: sent %d requests, %d arrived, want one", what, len(got.Sent), len(group))
		return
	}
	a := group[0]
	if a.Path != path || a.Model != model || !slices.Contains(v.stage.Fleet.Pool(a.Pool).Models, model) {
		v.t.Errorf("%s: pool %s got %s of model %q, want %s of %q", what, a.Pool, a.Path, a.Model, path, model)
	}
	if a.SHA256 != got.Sent[0].SHA256 {
		v.t.Errorf("%s: the engine read %d other bytes than the client sent", what, a.Bytes)
	}
	eventually(v.t, what+" has ended at its engine", 2*time.Second, func() bool { return endOf(v.t, v.stage, a).Outcome != "" })
	if end := endOf(v.t, v.stage, a); end.Outcome != "done" || got.Output != end.Tokens {
		v.t.Errorf("%s: the client counts %d tokens, the engine %s after %d", what, got.Output, end.Outcome, end.Tokens)
	}
}

func (v visit) embeddings() {
	v.t.Helper()
	got := v.ask("embed", order{Model: embedModel, Inputs: []string{"a river", "a weir"}})
	if !slices.Equal(got.Vectors, []int{384, 384}) || got.Prompt == 0 {
		v.t.Errorf("embed: %+v, want two vectors of 384", got)
	}
	v.reached("embed", "/v1/embeddings", embedModel, got)
}

func (v visit) models() {
	v.t.Helper()
	got := v.ask("models", order{})
	slices.Sort(got.Models)
	if want := []string{embedModel, chatModel}; !slices.Equal(got.Models, want) {
		v.t.Errorf("models: %v, want %v", got.Models, want)
	}
}

func (v visit) tools() {
	v.t.Helper()
	for _, what := range []string{"tool", "tool_stream"} {
		got := v.ask(what, order{Model: chatModel, Tokens: 100})
		city, _ := got.Args["city"].(string)
		days, _ := got.Args["days"].(float64)
		if got.Tool != "weather" || city == "" || days == 0 || got.Finish != v.called || got.Output == 0 {
			v.t.Errorf("%s: %+v, want a call of weather", what, got)
		}
		v.reached(what, v.path, chatModel, got)
	}
}

func (v visit) unknownModel() {
	v.t.Helper()
	got := v.do(v.t, order{Do: "chat", Mark: v.mark("unknown"), Model: "gpt-9", Tokens: 12, Retries: 2})
	if got.Error != "NotFoundError" || got.Status != 404 || !strings.Contains(got.Message, "GET /v1/models") {
		v.t.Errorf("unknown model: %s %d %q, want a NotFoundError that says what to do", got.Error, got.Status, got.Message)
	}
	if len(got.Sent) != 1 {
		v.t.Errorf("unknown model: asked %d times, want once", len(got.Sent))
	}
}

// talk stays on one engine, by how it begins or, without weir-extproc, by its
// session header.
func (v visit) talk() {
	v.t.Helper()
	const turns = 5
	o := order{Do: "talk", Mark: v.mark("talk"), Model: chatModel, Turns: turns}
	if v.state == "dead" {
		o.Headers = map[string]string{"x-session-id": o.Mark}
	}
	got := v.do(v.t, o)
	group := byTest(arrivals(v.t, v.stage))[o.Mark]
	if _, err := engineOf(group); err != nil || got.Error != "" || len(group) != turns {
		v.t.Errorf("talk: %s %s, %d turns of %d arrived, %v", got.Error, got.Message, len(group), turns, err)
	}
}

// abort closes a stream early, and the engine knows within a second.
func (v visit) abort() {
	v.t.Helper()
	mark := v.mark("abort")
	for _, o := range []order{{Do: "begin", Mark: mark, Model: chatModel, Tokens: 2000}, {Do: "close", Mark: mark}} {
		if got := v.do(v.t, o); got.Error != "" {
			v.t.Errorf("%s: %s %s", o.Do, got.Error, got.Message)
		}
	}
	aborted(v.t, v.stage, mark)
}

// aborted holds that the engine gives up the one request of a mark within a second.
func aborted(t *testing.T, s *stage.Stage, mark string) {
	t.Helper()
	group := byTest(arrivals(t, s))[mark]
	if len(group) != 1 {
		t.Fatalf("%s: %d requests arrived, want one", mark, len(group))
	}
	eventually(t, mark+": the engine stops", time.Second, func() bool { return endOf(t, s, group[0]).Outcome == "aborted" })
}

// ending is what an engine's journal says of the end of a request.
type ending struct {
	Event   string
	ID      uint64
	Outcome string // empty: it has not ended
	Tokens  int    `json:"outputTokens"`
}

func endOf(t *testing.T, s *stage.Stage, a stage.Arrival) (end ending) {
	t.Helper()
	f, err := os.Open(s.Journal(a.Engine))
	check(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e ending
		check(t, json.Unmarshal(lines.Bytes(), &e))
		if e.Event == "end" && e.ID == a.ID {
			return e
		}
	}
	check(t, lines.Err())
	return ending{}
}
