package extproc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"weir/extproc/wire"
	"weir/fleet"
)

// featuresTable has classes by what bodies say: vision, tools, long, and the rest.
func featuresTable() *Table {
	return routed(nil,
		fleet.Rule{Model: "m", Body: fleet.BodyRule{Tools: true, Vision: true}},
		fleet.Rule{Model: "m", Body: fleet.BodyRule{Vision: true}},
		fleet.Rule{Path: "/v1", Body: fleet.BodyRule{Tools: true}},
		fleet.Rule{Model: "m", Body: fleet.BodyRule{ContextOver: 100}},
		fleet.Rule{},
	)
}

func TestFeatures(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("four", 100) // 100 tokens
	tests := []struct {
		name, body    string
		tools, vision bool
		context       int
	}{
		{"nothing", `{"model":"m"}`, false, false, 0},
		{"a text", `{"model":"m","messages":[{"role":"user","content":"` + words + `"}]}`, false, false, 100},
		{"a text in parts", `{"messages":[{"content":[{"type":"text","text":"` + words + `"}],"role":"user"}],"model":"m"}`, false, false, 100},
		{"what comes before and after the user", `{"system":"` + words + `","messages":[{"content":"` + words + `"},{"role":"user","content":"` + words + `"},{"content":"` + words + `"}],"model":"m"}`, false, false, 400},
		{"responses", `{"instructions":"` + words + `","input":[{"role":"user","content":[{"type":"input_text","text":"` + words + `"}]}],"model":"m"}`, false, false, 200},
		{"a prompt", `{"prompt":["` + words + `","` + words + `"],"model":"m"}`, false, false, 200},
		{"a prompt of tokens", `{"prompt":[1,2,3],"model":"m"}`, false, false, 3},
		{"prompts of tokens", `{"prompt":[[1,2],[3]],"model":"m"}`, false, false, 3},
		{"escapes as they stand", `{"prompt":"\u00fc\u00fc\n\n","model":"m"}`, false, false, 4},
		{"what is no prompt", `{"user":"` + words + `","metadata":{"x":"` + words + `"},"response_format":{"x":["` + words + `"]},"model":"m"}`, false, false, 0},
		{"tools", `{"tools":[{"type":"function","function":{"name":"f","description":"` + words + `"}}],"model":"m"}`, true, false, 100},
		{"functions", `{"functions":[{"name":"f"}],"model":"m"}`, true, false, 0},
		{"no tools", `{"tools":[],"functions":null,"tool_choice":"auto","model":"m"}`, false, false, 0},
		{"tools that are no list", `{"tools":{"x":1},"model":"m"}`, false, false, 0},
		{"a tool that was called", `{"messages":[{"role":"user","content":""},{"role":"assistant","tool_calls":[{"function":{"arguments":"` + words + `"}}]}],"model":"m"}`, false, false, 100},
		{"a tool about images", `{"tools":[{"parameters":{"type":"image","enum":[{"type":"image"}]}}],"model":"m"}`, true, false, 0},
		{"an image in a chat", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + words + `"}},{"type":"text","text":"` + words + `"}]}],"model":"m"}`, false, true, 100},
		{"an image in a later turn", `{"messages":[{"role":"user","content":"x"},{"role":"user","content":[{"image_url":{"url":"` + words + `"},"type":"image_url"}]}],"model":"m"}`, false, true, 0},
		{"an image in responses", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:` + words + `"}]}],"model":"m"}`, false, true, 0},
		{"an image in messages", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"x","data":"` + words + `"}}]}],"model":"m"}`, false, true, 0},
		{"an image that a tool found", `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"data":"` + words + `"}}]}]}],"model":"m"}`, false, true, 0},
		{"an image as a tool's output", `{"input":[{"role":"user","content":"x"},{"type":"function_call_output","output":[{"type":"input_image"}]}],"model":"m"}`, false, true, 0},
		{"a sound and a file", `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"` + words + `","format":"wav"}},{"type":"file","file":{"file_data":"` + words + `"}}]}],"model":"m"}`, false, false, 0},
		{"a text about images", `{"messages":[{"role":"user","content":[{"type":"text","text":"image_url"}]}],"model":"m"}`, false, false, 2},
		{"an image elsewhere", `{"metadata":{"type":"image_url"},"model":"m"}`, false, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, fingerprint := range []bool{false, true} {
				w := wanted{features: true, fingerprint: fingerprint}
				f, err := w.read(t.Context(), []byte(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				got := f.features
				if got.tools != tt.tools || got.vision != tt.vision || got.context()-tt.context > 5 || tt.context > got.context() {
					t.Errorf("got %+v, a context of %d; want tools %v, vision %v, context %d and a few", got, got.context(), tt.tools, tt.vision, tt.context)
				}
			}
		})
	}
}

// What a prompt holds counts the same wherever it stands, and no fingerprint
// depends on whether anybody asks for features.
func TestFeaturesAgainstAnOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := map[string]any{"model": "m"}
		for _, name := range []string{"messages", "input", "prompt", "system", "tools", "other"} {
			object[name] = anyValue(t, 3)
		}
		body, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		w := wanted{features: true, fingerprint: true}
		got, err := w.read(t.Context(), body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		plain := wanted{fingerprint: true}
		if same, _ := plain.read(t.Context(), body); same.fingerprint != got.fingerprint || same.features != (features{}) {
			t.Fatalf("%s: without features %+v, with them %+v", body, same, got)
		}
		var want features
		for _, name := range []string{"messages", "input", "prompt", "system"} {
			want.count(object[name])
		}
		if list, ok := object["tools"].([]any); ok {
			vision := want.vision
			want.count(list)
			want.vision, want.tools = vision, len(list) > 0
		}
		// Roles of messages are read on the way to the fingerprint, and not counted.
		if extra := want.text - got.features.text; got.features.vision != want.vision || got.features.tools != want.tools ||
			got.features.tokens != want.tokens || extra < 0 || extra > len("words and words")*strings.Count(string(body), `"role"`) {
			t.Fatalf("%s: got %+v, want %+v", body, got.features, want)
		}
	})
}

// count is the slow way.
func (f *features) count(v any) {
	switch v := v.(type) {
	case string:
		f.text += len(v)
	case int:
		f.tokens++
	case []any:
		for _, x := range v {
			f.count(x)
		}
	case map[string]any:
		for name, x := range v {
			text, isText := x.(string)
			switch meaning := meaningOf([]byte(name)); {
			case meaning == ofKind && isText:
				f.kind([]byte(text))
			case meaning == ofData && isText:
			default:
				f.count(x)
			}
		}
	}
}

func anyValue(t *rapid.T, depth int) any {
	text := rapid.SampledFrom([]string{"", "user", "image", "image_url", "words and words"})
	kinds := 2
	if depth > 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0, 1:
		return text.Draw(t, "text")
	case 2:
		return rapid.IntRange(-5, 5).Draw(t, "number")
	case 3:
		return nil
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			list = append(list, anyValue(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		name := rapid.SampledFrom([]string{"role", "content", "type", "text", "data", "image_url", "cache_control", "x"}).Draw(t, "name")
		object[name] = anyValue(t, depth-1)
	}
	return object
}

// The class follows from what the body says, and Envoy is told.
func TestClassByTheBody(t *testing.T) {
	t.Parallel()
	const image = `{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}`
	long := `{"role":"user","content":"` + strings.Repeat("long", 101) + `"}`
	body := func(message, more string) string {
		return `{"model":"m","messages":[` + message + `]` + more + `}`
	}
	tests := []struct{ name, path, body, class, features, context string }{
		{"nothing special", "/", body(`{"role":"user","content":"hi"}`, ""), "4", "", "0"},
		{"vision", "/", body(image, ""), "1", "vision", ""},
		{"tools and vision", "/", body(image, `,"tools":[{}]`), "0", "tools,vision", ""},
		{"tools where they count", "/v1", body("", `,"tools":[{}]`), "2", "tools", ""},
		{"tools elsewhere", "/", body("", `,"tools":[{}]`), "4", "tools", ""},
		{"long", "/", body(long, ""), "3", "", "101"},
		{"just not long", "/", strings.Replace(body(long, ""), "long", "", 1), "4", "", "100"},
		{"another model", "/", strings.Replace(body(image, ""), `"m"`, `"n"`, 1), "4", "vision", ""},
		{"no model", "/v1", `{"tools":[{}]}`, "2", "tools", ""},
		{"unreadable", "/v1", `{"tools":[{}]`, "4", "", ""},
	}
	table := featuresTable()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := decideOn(table, headOf(post(tt.path)), tt.body)
			var a wire.Admission
			d.features.tell(&a)
			var says extprocv3.ProcessingResponse
			if err := proto.Unmarshal(a.Marshal(), &says); err != nil {
				t.Fatal(err)
			}
			told := mutations(says.GetRequestHeaders().GetResponse())
			if d.class == nil || string(d.class.id) != tt.class || told["x-weir-features"] != tt.features {
				t.Errorf("class %v, told %v; want %s, %q", d.class, told, tt.class, tt.features)
			}
			if tt.context != "" && tt.context != "0" && told["x-weir-context"] != tt.context {
				t.Errorf("told a context of %q, want %q", told["x-weir-context"], tt.context)
			}
		})
	}
}

func BenchmarkFeatures(b *testing.B) {
	turns := strings.Repeat(`{"role":"assistant","content":"`+strings.Repeat("word ", 100)+`"},`, 128)
	body := `{"messages":[{"role":"user","content":"hi"},` + turns + `{"role":"user","content":"so"}],"model":"m"}`
	for _, want := range []bool{false, true} {
		b.Run(fmt.Sprint(want), func(b *testing.B) {
			w := wanted{fingerprint: true, features: want}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.read(b.Context(), []byte(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
