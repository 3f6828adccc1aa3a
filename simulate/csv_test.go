package simulate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadCSV(t *testing.T) {
	got, err := ReadTrace(strings.NewReader("\ufeffprompt_tokens,seconds, class,output_tokens,front-end,conversation\n" +
		"10,1700000000.5,chat,20,paris,x\n30,1700000002,,5,,\n40,1700000002,chat,6,\"rome\",x\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Trace{
		Rows: []Row{
			{Prompt: 10, Output: 20, Marks: Marks{1, 1}, Talk: got.Rows[0].Talk},
			{At: 1.5, Prompt: 30, Output: 5},
			{At: 1.5, Prompt: 40, Output: 6, Marks: Marks{2, 1}, Talk: got.Rows[0].Talk},
		},
		BlockTokens: csvBlock, FrontEnds: []Name{{"paris", 2}, {"rome", 4}}, Classes: []Name{{"chat", 2}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Rows[0].Talk == 0 {
		t.Error("a conversation has no name")
	}
}

func TestReadTraceKnowsForms(t *testing.T) {
	for name, text := range map[string]string{
		"azure":    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-01-02 23:59:59.5000000,10,20\r\n",
		"mooncake": `{"timestamp": 0, "input_length": 10, "output_length": 20, "hash_ids": [1]}`,
		"csv":      "seconds,prompt_tokens,output_tokens\n0,10,20",
	} {
		trace, err := ReadTrace(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := trace.Rows; len(r) != 1 || r[0].Prompt != 10 || r[0].Output != 20 || (trace.BlockTokens > 0) != (name == "mooncake") {
			t.Errorf("%s: %+v", name, trace)
		}
	}
}

func TestReadTraceRefuses(t *testing.T) {
	const head = "seconds,prompt_tokens,output_tokens\n"
	tests := []struct{ name, text, want string }{
		{"nothing", "", "the trace has no row; write a head"},
		{"a head alone", head, "the trace has no row; write one for each request"},
		{"another form", "time,user\n1,2\n", `line 1: "time,user" begins no trace that is known; write the head seconds,`},
		{"an unknown column", "seconds,prompt_tokens,output_tokens,user\n", `line 1: column "user" is unknown`},
		{"a column twice", "seconds,seconds,prompt_tokens,output_tokens\n", `line 1: column "seconds" is unknown or named twice`},
		{"a column too few", "seconds,prompt_tokens\n", "line 1: the head has no column output_tokens; write"},
		{"a cell too few", head + "1,2\n", "record on line 2: wrong number of fields; write as many cells"},
		{"no time", head + "1,2,3\nlater,2,3\n", `line 3: seconds "later" is no time; write seconds like 12.5`},
		{"no number", head + "1,2.5,3\n", `line 2: prompt_tokens "2.5" is no number of tokens; write a whole one from 0 to 10000000`},
		{"a huge number", head + "1,2,3\n2,2,1e300\n", `line 3: output_tokens "1e300" is no number of tokens; write a whole one`},
		{"back in time", head + "1,2,3\n\n0.5,2,3\n", "line 4: it is earlier than the one before; sort the rows by time"},
		{"below zero", head + "1,2,3\n2,2,-3\n", "line 3: 2 and -3 tokens; write 0 to"},
		{"a time that is none", head + "NaN,2,3\n", "line 2: seconds"},
		{"two lives later", head + "0,2,3\n1e12,2,3\n", "line 3: 1e+12 s; write 0 to"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if trace, err := ReadTrace(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v: want an error with %q", trace, err, tt.want)
			}
		})
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add("seconds,class,front-end,prompt_tokens,output_tokens,conversation\n0,a,b,1,2,x\n1.5,,,300,2,x\n")
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-02 23:59:59.5000000,10,20\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ReadTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(trace.Rows) == 0 {
			t.Fatal("a trace without rows")
		}
		last := 0.0
		for _, r := range trace.Rows {
			if !(r.At >= last && r.At <= maxSeconds) || r.Prompt < 0 || r.Output < 0 ||
				int(r.Marks.FrontEnd) > len(trace.FrontEnds) || int(r.Marks.Class) > len(trace.Classes) {
				t.Fatalf("row %+v after %v s", r, last)
			}
			last = r.At
		}
	})
}
