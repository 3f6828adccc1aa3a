package extproc

import (
	"errors"
	"testing"
)

func printOf(t *testing.T, body string) uint64 {
	t.Helper()
	f, err := chatTable().read(t.Context(), &head{}, []byte(body))
	if err != nil && !errors.Is(err, errNoModel) {
		t.Fatalf("%s: %v", body, err)
	}
	return f.fingerprint
}

// Bodies of one group are turns of one conversation; no two groups are the same.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	groups := map[string][]string{
		"plain": {
			`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"messages":[{"content":"hi","role":"user"}],"temperature":1,"model":"m"}`,
			`{"model":"m","messages":[{"role":"user","content":"\u0068i"}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes?"},{"role":"user","content":"so"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"system","content":"be quick"}]}`,
		},
		"another model": {`{"model":"n","messages":[{"role":"user","content":"hi"}]}`},
		"another user":  {`{"model":"m","messages":[{"role":"user","content":"ho"}]}`},
		"an image":      {`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"a"}}]}]}`},
		"another image": {`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"b"}}]}]}`},
		"system turn": {
			`{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]}`,
			`{"model":"m","messages":[{"role":"developer","content":[{"type":"text","text":"be kind"}]},{"role":"user","content":"hi"}]}`,
		},
		"system member": {
			`{"model":"m","system":"be kind","messages":[{"role":"user","content":"hi"}]}`,
			`{"messages":[{"role":"user","content":"hi"}],"system":[{"type":"text","text":"be kind","cache_control":{}}],"model":"m"}`,
		},
		"responses": {
			`{"model":"m","instructions":"be kind","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}`,
			`{"model":"m","instructions":"be kind","input":"hi"}`,
			`{"input":[{"role":"user","content":"hi"},{"type":"reasoning"},{"role":"user","content":"so"}],"instructions":"be kind","model":"m"}`,
		},
		"prompt":         {`{"model":"m","prompt":"hi"}`, `{"prompt":["hi"],"model":"m"}`},
		"tokens":         {`{"model":"m","prompt":[1,2,3]}`},
		"other tokens":   {`{"model":"m","prompt":[1,2,4]}`},
		"batch":          {`{"model":"m","input":["a","b"]}`},
		"batch, swapped": {`{"model":"m","input":["b","a"]}`},
		"no model":       {`{"messages":[{"role":"user","content":"hi"}]}`},
	}
	seen := map[uint64]string{}
	for name, bodies := range groups {
		want := printOf(t, bodies[0])
		if want == 0 {
			t.Errorf("%s: none", name)
		}
		if other, ok := seen[want]; ok {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[want] = name
		for _, body := range bodies[1:] {
			if got := printOf(t, body); got != want {
				t.Errorf("%s: %s is another conversation", name, body)
			}
		}
	}
}

// Where the user says nothing, all conversations would share one fingerprint.
func TestNoFingerprint(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"model":"m"}`,
		`{"model":"m","messages":[]}`,
		`{"model":"m","messages":null}`,
		`{"model":"m","messages":[{"role":"user","content":null}]}`,
		`{"model":"m","messages":[{"role":7,"content":"hi"}]}`,
		`{"model":"m","system":"be kind","messages":[{"role":"assistant","content":"hi"}]}`,
		`{"model":"m","instructions":"be kind","input":{}}`,
	} {
		if got := printOf(t, body); got != 0 {
			t.Errorf("%s: got %d, want none", body, got)
		}
	}
}

// A table whose classes use no fingerprint reads none.
func TestFingerprintNotWanted(t *testing.T) {
	t.Parallel()
	f, err := (&Table{}).read(t.Context(), &head{}, []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil || f.fingerprint != 0 {
		t.Errorf("got %+v, %v", f, err)
	}
}
