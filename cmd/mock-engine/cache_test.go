package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func prefixesOf(text string) *prefixes {
	p := newPrefixes("mock", 2)
	p.write(text)
	return p
}

func TestCacheFindsSharedBlocks(t *testing.T) {
	const known = "aaaaAAAAbbbbBBBBccccCCCC" // three blocks of two tokens
	tests := []struct {
		name, text string
		want       int
	}{
		{"nothing in common", "xxxxAAAAbbbbBBBBccccCCCC", 0},
		{"a block", "aaaaAAAAbbbbxxxxccccCCCC", 2},
		{"the start, cut within a block", "aaaaAAAAbbbbB", 2},
		{"everything but the last block, which gives the next token", known, 4},
		{"everything, and more", known + "d", 4},
		{"everything, and a token more", known + "dddd", 6},
		{"the same blocks elsewhere", "bbbbBBBBaaaaAAAA", 0},
		{"less than a token", "a", 0},
		{"nothing", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCache(100, 2)
			c.add(prefixesOf(known))
			if got := c.find(prefixesOf(tt.text)); got != tt.want {
				t.Errorf("%d tokens found, want %d", got, tt.want)
			}
		})
	}
}

func TestCacheForgets(t *testing.T) {
	a, b := strings.Repeat("a", 25), strings.Repeat("b", 17) // three blocks and two, and a bit
	c := newCache(8, 2)                                      // four blocks
	c.add(prefixesOf(a))
	c.add(prefixesOf(b))
	if got := c.find(prefixesOf(b + "bbb")); got != 4 {
		t.Errorf("%d tokens of the last text found, want 4", got)
	}
	if got := c.find(prefixesOf(a + "aaa")); got != 4 {
		t.Errorf("%d tokens of the first text found, want 4: its end goes first", got)
	}
	c.add(prefixesOf(strings.Repeat("c", 100)))
	if got := c.find(prefixesOf(strings.Repeat("c", 100))); got != 8 {
		t.Errorf("%d tokens of a text larger than the cache found, want 8: its start", got)
	}
}

func TestModelsDoNotShareBlocks(t *testing.T) {
	c := newCache(100, 2)
	c.add(prefixesOf("aaaaAAAAbbbb"))
	other := newPrefixes("other", 2)
	other.write("aaaaAAAAbbbb")
	if got := c.find(other); got != 0 {
		t.Errorf("%d tokens of another model's text found, want 0", got)
	}
}

// How a text is cut into writes makes no difference, and prefixes agree exactly as
// far as their texts do.
func TestPrefixesLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 60, -1)
		a, b := letters.Draw(t, "a"), letters.Draw(t, "b")
		cut := rapid.IntRange(0, len(a)).Draw(t, "cut")
		whole, parts := prefixesOf(a), prefixesOf(a[:cut])
		parts.write(a[cut:])
		if diff := cmp.Diff(whole.ends, parts.ends); diff != "" || whole.length != parts.length {
			t.Errorf("written in two parts (-whole +parts):\n%s", diff)
		}
		for i, end := range prefixesOf(b).ends {
			n := (i + 1) * whole.size
			if known := slices.Contains(whole.ends, end); known != strings.HasPrefix(a, b[:n]) {
				t.Errorf("the first %d bytes of %q are a prefix of %q: %v", n, b, a, known)
			}
		}
	})
}

// A slow list of the keys in their order of use is the truth about an lru.
func TestLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "most")
		l, truth := newLRU[int, int](most), []int{}
		for step := range rapid.IntRange(0, 50).Draw(t, "steps") {
			key := rapid.IntRange(0, 8).Draw(t, "key")
			i := slices.Index(truth, key)
			if i >= 0 {
				truth = slices.Delete(truth, i, i+1)
			}
			if rapid.Bool().Draw(t, "put") {
				l.put(key, step)
				truth = append(truth, key)
				truth = truth[max(0, len(truth)-most):]
				continue
			}
			if _, ok := l.get(key); ok != (i >= 0) {
				t.Fatalf("get(%d) = %v, want %v", key, ok, i >= 0)
			}
			if i >= 0 {
				truth = append(truth, key)
			}
		}
		if len(l.items) != len(truth) || l.order.Len() != len(truth) {
			t.Errorf("%d items in an order of %d, want %d", len(l.items), l.order.Len(), len(truth))
		}
	})
}

// talk sends a conversation's next turn and returns all that was said then.
func talk(t *testing.T, e *engine, before []chatTurn, next string) (after []chatTurn) {
	t.Helper()
	turns := append(before, chatTurn{"user", next})
	body, err := json.Marshal(map[string]any{"model": "mock", "messages": turns, "max_tokens": 20})
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(post(t.Context(), e, chatPath, string(body)).Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return append(turns, chatTurn{assistant, *r.Choices[0].Message.Content})
}

type chatTurn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// The point of affinity: a follow-up turn is cheap where the conversation was, and
// dear elsewhere.
func TestFollowUpIsCheapAndMoveIsDear(t *testing.T) {
	args := []string{"--ttft=1s", "--tbt=0s", "--reference-prompt=1000"}
	inBubble(t, func(t *testing.T, home *engine, homeLog *sink) {
		other, otherLog := testEngine(t, args...)
		said := talk(t, home, nil, strings.Repeat("question ", 400))
		said = talk(t, home, said, "go on")
		talk(t, home, said, "and then?")
		talk(t, other, said, "and then?")
		turns, ends := lines[arrival](t, homeLog, "arrival"), lines[ending](t, homeLog, "end")
		moved, movedEnd := lines[arrival](t, otherLog, "arrival")[0], lines[ending](t, otherLog, "end")[0]
		if turns[0].Cached != 0 || moved.Cached != 0 {
			t.Errorf("cached at first: %d, after the move: %d, want none", turns[0].Cached, moved.Cached)
		}
		for i, turn := range turns[1:] {
			// Prompt, answer and the next question, but for the block that they end in.
			if least := turn.Prompt - 2*home.block; turn.Cached < least || ends[i+1].Cached != turn.Cached {
				t.Errorf("turn %d: %d of %d tokens cached, want at least %d", i+2, turn.Cached, turn.Prompt, least)
			}
			if got, want := *ends[i+1].TTFT, 0.1; got != want {
				t.Errorf("turn %d: TTFT %v, want the least, %v", i+2, got, want)
			}
		}
		if got, want := *movedEnd.TTFT, float64(moved.Prompt)/1000; math.Abs(got-want) > 1e-6 {
			t.Errorf("TTFT after the move %v, want %v for %d tokens", got, want, moved.Prompt)
		}
	}, args...)
}

// Cached tokens are no work: utilisation counts what was computed.
func TestCachedTokensAreNoWork(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		body := fmt.Sprintf(`{"model":"mock","max_tokens":1,"messages":[{"content":%q}]}`, strings.Repeat("x", 4001))
		var added [2]float64
		for i := range added {
			e.meter.rate = 0
			post(t.Context(), e, chatPath, body)
			added[i] = e.meter.rate * e.window.Seconds()
		}
		if want := [2]float64{1, 8.0 / 1000}; added != want {
			t.Errorf("work = %v, want %v", added, want)
		}
	}, "--reference-prompt=1000", "--ttft=0s")
}

func TestHistory(t *testing.T) {
	tests := []struct {
		name, first, second string
		want                string // conversation of the second, in the journal
	}{
		{
			"by the response", `{"model":"mock","input":"first"}`,
			`{"model":"mock","input":"second","previous_response_id":"resp_engine-1"}`, "first",
		},
		{
			"by the conversation", `{"model":"mock","input":"first","conversation":"c"}`,
			`{"model":"mock","input":"second","conversation":{"id":"c"}}`, "first",
		},
		{
			"not kept", `{"model":"mock","input":"first","store":false}`,
			`{"model":"mock","input":"second","previous_response_id":"resp_engine-1"}`, "second",
		},
		{
			"not known", `{"model":"mock","input":"first"}`,
			`{"model":"mock","input":"second","previous_response_id":"resp_engine-9"}`, "second",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine, log *sink) {
				for _, body := range []string{tt.first, tt.second} {
					if w := post(t.Context(), e, responsesPath, body); w.Code != 200 {
						t.Fatalf("status %d: %s", w.Code, w.Body)
					}
				}
				if got := lines[arrival](t, log, "arrival")[1].Talk; got != tt.want {
					t.Errorf("the conversation starts with %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A response that was made here is known here until it is deleted.
func TestStoredResponses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, e *engine, _ *sink) {
		var made struct{ ID string }
		if err := json.Unmarshal(post(t.Context(), e, responsesPath, `{"model":"mock","input":"x"}`).Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		ask := func(method, path string, want int) {
			t.Helper()
			w := httptest.NewRecorder()
			e.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			if w.Code != want {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
			}
		}
		its := responsesPath + "/" + made.ID
		ask("GET", its, 200)
		ask("GET", its+"/input_items", 200)
		ask("POST", its+"/cancel", 200)
		ask("GET", its+"x", 404)
		ask("DELETE", its, 200)
		ask("GET", its, 404)
	})
}
