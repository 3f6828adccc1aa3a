package deploy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/deploy/stage"
)

// Clients may call a model by an alias. The engine reads the model's own name in its
// place, and every other byte as it was sent, at the length that the header says;
// without weir-extproc nobody is sent there, and the model itself goes on.
func TestAliasesAreSpliced(t *testing.T) {
	t.Parallel()
	s, engines := startWitnesses(t, stage.Options{})
	client := stage.NewClient()
	cases := map[string]plea{
		"first":        {body: `{"model":"gpt-4o","messages":[]}`},
		"last":         {body: `{"messages":[{"model":"gpt-4o"}],"user":"gpt-4o","model":"gpt-4o"}`},
		"spaced":       {body: "\n{ \"model\" :\t\"gpt-4o\" ,\"seed\":9007199254740993,\"x\":1.0e+0 }\r\n"},
		"escaped":      {body: `{"mod\u0065l":"gpt-4\u006f"}`},
		"no UTF-8":     {body: "{\"user\":\"\xff\xfe\",\"model\":\"gpt-4o\"}"},
		"chunked":      {body: `{"model":"gpt-4o","user":"u"}`, chunked: true},
		"large":        {body: `{"pad":"` + strings.Repeat("w ", 1<<20) + `","model":"gpt-4o"}`},
		"at the limit": {body: fill(`{"pad":"%s","model":"gpt-4o"}`, 4<<20-len("llama-3.3-70b")+len("gpt-4o"))},
	}
	eachState(t, s, func(t *testing.T, state string) {
		for name, p := range cases {
			mark := state + "/" + name
			r := sendPlea(t, client, s, mark, p)
			if state == "dead" {
				status := 503
				if name == "no UTF-8" {
					status = 400 // which Envoy does not read
				}
				mustRefuse(t, r, status)
				continue
			}
			if !r.OK() {
				t.Errorf("%s: %v", mark, &r)
				continue
			}
			got := engines.one(t, mark)
			want := strings.NewReplacer(`el":"gpt-4o"`, `el":"llama-3.3-70b"`, "el\" :\t\"gpt-4o\"", "el\" :\t\"llama-3.3-70b\"", `"gpt-4\u006f"`, `"llama-3.3-70b"`).Replace(p.body)
			want = strings.Replace(want, `[{"model":"llama-3.3-70b"}]`, `[{"model":"gpt-4o"}]`, 1) // no model of the request's
			if string(got.body) != want {
				t.Errorf("%s: the engine read %.200q, want %.200q", mark, got.body, want)
			}
			length := int64(len(want))
			if p.chunked {
				length = -1
			}
			if got.length != length {
				t.Errorf("%s: the header says %d bytes, want %d", mark, got.length, length)
			}
		}
		if state == "alive" {
			retriedAlias(t, s, engines)
		}
		if r := sendPlea(t, client, s, state+"/itself", plea{body: `{"model":"llama-3.3-70b"}`}); !r.OK() {
			t.Errorf("%s: the model itself: %v", state, &r)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		fmt.Fprint(z, `{"model":"gpt-4o"}`)
		check(t, z.Close())
		mustRefuse(t, sendPlea(t, client, s, state+"/packed", plea{body: packed.String(), headers: map[string]string{"content-encoding": "gzip"}}), 400)
		listed(t, sendPlea(t, client, s, "", plea{method: "GET", path: "/v1/models"}), "gpt-4o", "llama-3.3-70b", "whisper-1")
	})
	for _, mark := range []string{"dead/first", "alive/packed", "dead/packed"} {
		if seen := engines.of(mark); len(seen) != 0 {
			t.Errorf("%s reached an engine", mark)
		}
	}
}

// retriedAlias holds that further engines are sent the same body as the first.
func retriedAlias(t *testing.T, s *stage.Stage, engines witnesses) {
	t.Helper()
	client := stage.NewClient()
	retried := 0
	for i := range 12 { // conversations, of which about half are at home elsewhere
		mark := fmt.Sprint("retried", i)
		body := fmt.Sprintf(`{"user":"u%d","model":"gpt-4o"}`, i)
		if r := sendPlea(t, client, s, mark, plea{body: body, headers: map[string]string{only: engines[0].address}}); !r.OK() {
			t.Errorf("%s: %v", mark, &r)
		}
		seen := engines.of(mark)
		for _, x := range seen {
			if want := strings.Replace(body, "gpt-4o", "llama-3.3-70b", 1); string(x.body) != want {
				t.Errorf("%s: an engine of %d read %q", mark, len(seen), x.body)
			}
		}
		if len(seen) > 1 {
			retried++
		}
	}
	if retried == 0 {
		t.Error("of twelve requests none was retried")
	}
}

// fill puts as many bytes into a format as make its length.
func fill(format string, length int) string {
	return fmt.Sprintf(format, strings.Repeat("w", length-len(format)+len("%s")))
}

// listed holds that a list of models has these names.
func listed(t *testing.T, r stage.Reply, names ...string) {
	t.Helper()
	var list struct{ Data []struct{ ID string } }
	check(t, json.Unmarshal(r.Body, &list))
	var got []string
	for _, m := range list.Data {
		got = append(got, m.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("models %q, want %q", got, names)
	}
}
