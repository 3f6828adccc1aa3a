package extproc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"weir/fleet"
)

// say words a decision for comparison.
func say(d decision) string {
	class := "none"
	if d.class != nil {
		class = string(d.class.id)
	}
	if d.refusal != nil {
		return fmt.Sprintf("%s: %d", class, d.refusal.status)
	}
	return class + ": admitted"
}

// decideOn runs a request through a table as the server does.
func decideOn(t *Table, h *head, body string) decision {
	if t.need(h) != theBody {
		return t.decide(h, facts{}, nil, 1)
	}
	if err := h.inspectable(); err != nil {
		return t.decide(h, facts{}, err, 1)
	}
	f, err := t.read(context.Background(), h, []byte(body))
	return t.decide(h, f, err, 1)
}

func TestDecide(t *testing.T) {
	t.Parallel()
	class := func(id fleet.ClassID) fleet.ViewClass {
		return fleet.ViewClass{ID: id, Admitted: 1, Pools: []fleet.ViewPool{viewPool("east", 1, 1)}}
	}
	keyed := class("audio")
	keyed.Affinity = []fleet.AffinityKey{{Kind: fleet.AffinityBody, Name: "user"}}
	v := fleet.View{
		Routes: []fleet.ViewRoute{
			{Class: "gold", Rule: fleet.Rule{Path: "/gold", Model: "m"}},
			{Class: "audio", Rule: fleet.Rule{Path: "/audio"}},
			{Class: "chat", Rule: fleet.Rule{Model: "m"}},
			{Class: "dark", Rule: fleet.Rule{Model: "dark"}},
			{Class: "unheard", Rule: fleet.Rule{Model: "unheard"}},
		},
		Classes: []fleet.ViewClass{keyed, class("chat"), {ID: "dark", Admitted: 1}, class("gold"), class("rest")},
	}
	strict := NewTable(&v)
	v.Unreadable = "rest"
	lax := NewTable(&v)

	const form = "content-type: multipart/form-data; boundary=b"
	tests := []struct {
		name, path, header, body string
		strict, lax              string
	}{
		{"model", "/v1", "", `{"model":"m"}`, "chat: admitted", "chat: admitted"},
		{"model and path", "/gold", "", `{"model":"m"}`, "gold: admitted", "gold: admitted"},
		{"unknown model", "/v1", "", `{"model":"x"}`, "none: 404", "none: 404"},
		{"class without pools", "/v1", "", `{"model":"dark"}`, "dark: 503", "dark: 503"},
		{"class not in the view", "/v1", "", `{"model":"unheard"}`, "unheard: 503", "unheard: 503"},
		{"no model", "/v1", "", `{}`, "none: 400", "rest: admitted"},
		{"no JSON", "/v1", "", `model=m`, "none: 400", "rest: admitted"},
		{"form", "/v1", form, `model=m`, "none: 400", "rest: admitted"},
		{"zstd", "/v1", "content-encoding: zstd", `model=m`, "none: 400", "rest: admitted"},
		{"repeated key", "/v1", "", `{"model":"m","model":"m"}`, "none: 400", "none: 400"},
		{"by path", "/audio", "", `{"user":"u"}`, "audio: admitted", "audio: admitted"},
		{"by path, no JSON", "/audio", "", `model=m`, "audio: admitted", "audio: admitted"},
		{"by path, form", "/audio", form, `model=m`, "audio: admitted", "audio: admitted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lines := []string{"content-type: application/json"}
			if tt.header == form {
				lines = nil
			}
			if tt.header != "" {
				lines = append(lines, tt.header)
			}
			h := headOf(request("POST", tt.path, lines...))
			if got := say(decideOn(strict, h, tt.body)); got != tt.strict {
				t.Errorf("without a class for unreadable requests: %s, want %s", got, tt.strict)
			}
			if got := say(decideOn(lax, h, tt.body)); got != tt.lax {
				t.Errorf("with one: %s, want %s", got, tt.lax)
			}
		})
	}
}

// A body without a model still names the conversation of a class that the path
// decides.
func TestKeyWithoutModel(t *testing.T) {
	t.Parallel()
	table := routed([]fleet.AffinityKey{{Kind: fleet.AffinityBody, Name: "user"}}, fleet.Rule{Path: "/"})
	d := decideOn(table, headOf(post("/")), `{"user":"u"}`)
	if source := table.sources[d.key.source]; d.key.hash != hashOfName([]byte("u")) || source != "body:user" {
		t.Errorf("got %x from %s, want the hash of u from body:user", d.key.hash, source)
	}
}

func TestKeyOrder(t *testing.T) {
	t.Parallel()
	header := fleet.AffinityKey{Kind: fleet.AffinityHeader, Name: "x-session"}
	user := fleet.AffinityKey{Kind: fleet.AffinityBody, Name: "user"}
	fingerprint := fleet.AffinityKey{Kind: fleet.AffinityFingerprint}
	body := `{"model":"m","user":"u","messages":[{"role":"user","content":"hi"}]}`
	tests := []struct {
		name  string
		order []fleet.AffinityKey
		line  string
		body  string
		want  string
	}{
		{"header first", []fleet.AffinityKey{header, user, fingerprint}, "x-session: s", body, "header:x-session"},
		{"body first", []fleet.AffinityKey{user, header, fingerprint}, "x-session: s", body, "body:user"},
		{"fingerprint first", []fleet.AffinityKey{fingerprint, header, user}, "x-session: s", body, "fingerprint"},
		{"no header", []fleet.AffinityKey{header, user, fingerprint}, "x: y", body, "body:user"},
		{"empty header", []fleet.AffinityKey{header, fingerprint}, "x-session: ", body, "fingerprint"},
		{"the header last", []fleet.AffinityKey{user, fingerprint, header}, "x-session: s", `{"model":"m"}`, "header:x-session"},
		{"nothing there", []fleet.AffinityKey{header, user, fingerprint}, "x: y", `{"model":"m"}`, "random"},
		{"nothing configured", nil, "x-session: s", body, "random"},
		{"unknown kind", []fleet.AffinityKey{{Kind: "cookie"}, user}, "x: y", body, "body:user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table := routed(tt.order, fleet.Rule{Model: "m"})
			if d := decideOn(table, headOf(post("/", tt.line)), tt.body); table.sources[d.key.source] != tt.want {
				t.Errorf("got %s, want %s", table.sources[d.key.source], tt.want)
			}
		})
	}
}

func TestOneTextOneKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z0-9_-]{1,40}`).Draw(t, "name")
		key := func(order fleet.AffinityKind, header, body string) affinity {
			table := routed([]fleet.AffinityKey{{Kind: order, Name: "x"}}, fleet.Rule{Model: "m"})
			return decideOn(table, headOf(post("/", header)), body).key
		}
		header := key(fleet.AffinityHeader, "x: "+name, `{"model":"m"}`)
		body := key(fleet.AffinityBody, "y: z", `{"x":"`+name+`","model":"m"}`)
		if header.hash != body.hash || header.source == 0 || body.source == 0 {
			t.Errorf("header gives %+v, body %+v", header, body)
		}
	})
}

// Who is in stays in as the fraction rises, and none or all are at its ends.
func TestAdmittedFractionIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Uint64().Draw(t, "key")
		low := rapid.Float64Range(0, 1).Draw(t, "low")
		high := rapid.Float64Range(low, 1).Draw(t, "high")
		c := class{salt: rapid.Uint64().Draw(t, "salt"), tally: &tally{}}
		at := func(fraction float64) bool {
			c.admitted = fraction
			return (&Table{clock: &atomic.Int64{}}).enters(&head{}, &decision{class: &c, key: affinity{hash: key}})
		}
		if at(0) || !at(1) || at(low) && !at(high) {
			t.Errorf("at 0 %v, %v %v, %v %v, 1 %v", at(0), low, at(low), high, at(high), at(1))
		}
	})
}

// What is shed is told apart by conversation only, so that a client that comes
// back with the same one gets the same answer.
func TestShedIsDeterministic(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Classes[0].Admitted = 0.5
	a, b := NewTable(v), NewTable(v)
	shed := 0
	for i := range 1000 {
		h := headOf(post("/", fmt.Sprintf("x-session: %d", i)))
		one, two := decideOn(a, h, `{"model":"small"}`), decideOn(b, h, `{"model":"small"}`)
		if say(one) != say(two) {
			t.Fatalf("session %d: %s and %s", i, say(one), say(two))
		}
		if one.refusal == nil {
			continue
		}
		shed++
		if s := one.refusal.retryAfterSeconds; s < 5 || s > 9 || s != two.refusal.retryAfterSeconds {
			t.Errorf("session %d: retry after %d and %d s", i, s, two.refusal.retryAfterSeconds)
		}
	}
	if z := zScore(shed, 1000, 0.5); z < -4 || z > 4 {
		t.Errorf("%d of 1000 shed, z = %.1f", shed, z)
	}
}

func TestFitsHeader(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{
		"llama-3.3/70b:fast": true, "通义": true, "two words": true,
		"": false, " m": false, "m ": false, "a\nb": false, "a\x7f": false, "a\x00": false,
		strings.Repeat("m", maxModelHeader+1): false,
	} {
		if got := fitsHeader(model); got != want {
			t.Errorf("%q: got %v, want %v", model, got, want)
		}
	}
}
