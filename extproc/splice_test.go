package extproc

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/fleet"
)

// aliased is a view in which "gpt" and "öl" mean "small".
func aliased() *fleet.View {
	v := twoPools()
	v.Routes = append([]fleet.ViewRoute{
		{Class: "chat", Rule: fleet.Rule{Model: "gpt", As: "small"}},
		{Class: "chat", Rule: fleet.Rule{Model: "öl", As: "small"}},
		{Class: "chat", Rule: fleet.Rule{Path: "/odd", Model: "odd", As: "a \"b\" \\ \x01é"}},
	}, v.Routes...)
	return v
}

// An alias is replaced by the model's own name, and not another byte is touched.
func TestAliases(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, aliased())
	for _, c := range []struct{ name, path, body, want string }{
		{"first", "/v1", `{"model":"gpt","messages":[]}`, `{"model":"small","messages":[]}`},
		{"last", "/v1", `{"messages":[{"model":"gpt"}],"user":"gpt","model":"gpt"}`, `{"messages":[{"model":"gpt"}],"user":"gpt","model":"small"}`},
		{"spaced", "/v1", "\n{ \"model\" :\t\"gpt\" ,\"seed\":9007199254740993 }\r\n", "\n{ \"model\" :\t\"small\" ,\"seed\":9007199254740993 }\r\n"},
		{"escaped", "/v1", `{"mod\u0065l":"\u0067pt","x":1.0e+0}`, `{"mod\u0065l":"small","x":1.0e+0}`},
		{"not ASCII", "/v1", `{"a":"ü","model":"öl"}`, `{"a":"ü","model":"small"}`},
		{"no UTF-8 elsewhere", "/v1", "{\"user\":\"\xff\",\"model\":\"gpt\"}", "{\"user\":\"\xff\",\"model\":\"small\"}"},
		{"lone surrogate elsewhere", "/v1", `{"user":"\ud800","model":"gpt"}`, `{"user":"\ud800","model":"small"}`},
		{"to be quoted", "/odd", `{"model":"odd"}`, `{"model":"a \"b\" \\ \u0001é"}`},
		{"large", "/v1", `{"pad":"` + strings.Repeat("y", 2<<20) + `","model":"gpt"}`, `{"pad":"` + strings.Repeat("y", 2<<20) + `","model":"small"}`},
		{"the model itself", "/v1", `{"model":"small"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, conn)
			x.headers(post(c.path))
			got := x.body(c.body).GetRequestBody().GetResponse()
			if got == nil || string(got.GetBodyMutation().GetBody()) != c.want {
				t.Errorf("got %.200q, want %.200q", got.GetBodyMutation().GetBody(), c.want)
			}
			var asked struct{ Model string }
			if json.Unmarshal([]byte(c.body), &asked) != nil || mutations(got)["x-weir-model"] != asked.Model {
				t.Errorf("routed by model %q, want what the client calls it", mutations(got)["x-weir-model"])
			}
		})
	}
	if n := s.Counters().Aliased.Load(); n != 9 {
		t.Errorf("counted %d, want 9", n)
	}
}

// What is no alias stays as it is, and what cannot be rewritten is refused.
func TestNoAlias(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, aliased())
	packed := open(t, conn)
	packed.headers(post("/v1", "content-encoding: gzip"))
	got := packed.body(string(gzipped(t, `{"model":"gpt"}`))).GetImmediateResponse()
	if got.GetStatus().GetCode() != 400 || !bytes.Contains(got.GetBody(), []byte("alias")) {
		t.Errorf("compressed: %v, want a 400 that says so", got)
	}
	for body, status := range map[string]int32{`{"model":"gpt","model":"gpt"}`: 400, `{"model":"gpt","Model":"x"}`: 400, `{"model":"GPT"}`: 404, `{"model":"odd"}`: 404} {
		x := open(t, conn)
		x.headers(post("/v1"))
		if got := x.body(body).GetImmediateResponse(); int32(got.GetStatus().GetCode()) != status {
			t.Errorf("%s: %v, want %d", body, got, status)
		}
	}
}

// Whatever the body, what is spliced says the same but for the model.
func FuzzSplice(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m"}`, `{"a":[1,{"model":2}],"model":"\u006d","z":null}`, " {\n\"mod\\u0065l\" : \"x\" } ",
		`{"model":null}`, `{"model":"m","model":"n"}`, "{\"a\":\"\xff\",\"model\":\"m\"}", `{"model":"m","seed":123456789012345678901}`, `[]`, ``,
	} {
		f.Add([]byte(seed), "small")
	}
	table := chatTable("conversation")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		if !utf8.ValidString(name) {
			return // no fleet file has it
		}
		given := bytes.Clone(body)
		got, err := table.read(t.Context(), &head{}, body)
		if err != nil {
			return
		}
		if quoted := body[got.at.from:got.at.to]; quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
			t.Fatalf("the model is said to be %q", quoted)
		}
		out := splice(body, got.at, name)
		if !bytes.Equal(body, given) {
			t.Fatal("the body was changed")
		}
		before, after := decoded(t, body), decoded(t, out)
		if string(before["model"]) == "" || before["model"][0] != '"' {
			t.Fatalf("the model is %s", before["model"])
		}
		var model string
		if json.Unmarshal(after["model"], &model) != nil || model != name {
			t.Fatalf("the model is %s, want %q", after["model"], name)
		}
		delete(before, "model")
		delete(after, "model")
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("got %s, want %s but for the model", out, body)
		}
	})
}

// decoded reads an object's members, each as it is written.
func decoded(t *testing.T, body []byte) map[string]json.RawMessage {
	t.Helper()
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return members
}
