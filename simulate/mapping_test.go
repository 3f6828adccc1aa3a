package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

// mapped is a fleet of two front-ends and two classes, whose demand is 30, 10, 0, 60.
func mapped() *fleet.Fleet {
	return &fleet.Fleet{
		FrontEnds: []fleet.FrontEnd{
			{ID: "paris", Demand: map[fleet.ClassID]float64{"chat": 30, "code": 10}},
			{ID: "rome", Demand: map[fleet.ClassID]float64{"code": 60}},
		},
		Classes: []fleet.Class{{ID: "chat"}, {ID: "code"}},
	}
}

// silent is the fleet if it declares no demand.
func silent() *fleet.Fleet {
	f := mapped()
	f.FrontEnds[0].Demand, f.FrontEnds[1].Demand = nil, nil
	return f
}

// proportions writes a mix as parts of a hundred.
func proportions(m *Mix, f *fleet.Fleet) map[string]string {
	out := map[string]string{}
	for _, s := range m.Sources {
		out[string(f.FrontEnds[s.FrontEnd].ID)+"/"+string(f.Classes[s.Class].ID)] = fmt.Sprintf("%.1f", 100*s.Rps/m.Rps())
	}
	return out
}

func TestMapping(t *testing.T) {
	type parts = map[string]string
	tests := []struct {
		name                     string
		fleet                    *fleet.Fleet
		row                      string // front-end, class
		toFrontEnd, toClass      map[string]string
		fromFrontEnds, ofClasses map[string]float64
		want                     parts
	}{
		{name: "nothing said: as declared", row: ",", want: parts{"paris/chat": "30.0", "paris/code": "10.0", "rome/code": "60.0"}},
		{name: "both named", row: "rome,chat", want: parts{"rome/chat": "100.0"}},
		{name: "a front-end named: its classes", row: "paris,", want: parts{"paris/chat": "75.0", "paris/code": "25.0"}},
		{name: "a class named: where it is asked for", row: ",code", want: parts{"paris/code": "14.3", "rome/code": "85.7"}},
		{name: "other names", row: "cdg,gpt", toFrontEnd: map[string]string{"cdg": "paris"}, toClass: map[string]string{"gpt": "code"}, want: parts{"paris/code": "100.0"}},
		{name: "any other name", row: "xyz,chat", toFrontEnd: map[string]string{"*": "rome"}, want: parts{"rome/chat": "100.0"}},
		{name: "any other name, but not one that is known", row: "paris,chat", toFrontEnd: map[string]string{"*": "rome"}, want: parts{"paris/chat": "100.0"}},
		{name: "a known name means another", row: "paris,chat", toFrontEnd: map[string]string{"paris": "rome"}, want: parts{"rome/chat": "100.0"}},
		{name: "weights of front-ends", row: ",", fromFrontEnds: map[string]float64{"paris": 4, "rome": 1}, want: parts{"paris/chat": "60.0", "paris/code": "20.0", "rome/code": "20.0"}},
		{name: "weights of classes", row: ",", ofClasses: map[string]float64{"chat": 1, "code": 1}, want: parts{"paris/chat": "20.0", "paris/code": "20.0", "rome/chat": "30.0", "rome/code": "30.0"}},
		{name: "weights of both", fleet: silent(), row: ",", fromFrontEnds: map[string]float64{"rome": 1}, ofClasses: map[string]float64{"chat": 3, "code": 1}, want: parts{"rome/chat": "75.0", "rome/code": "25.0"}},
		{name: "weights yield to names", row: "paris,chat", fromFrontEnds: map[string]float64{"rome": 1}, want: parts{"paris/chat": "100.0"}},
		{name: "no demand, and none needed", fleet: silent(), row: "paris,chat", want: parts{"paris/chat": "100.0"}},
		{name: "a front-end without demand has the fleet's classes", row: "paris,", fleet: func() *fleet.Fleet {
			f := mapped()
			f.FrontEnds[0].Demand = nil
			return f
		}(), want: parts{"paris/code": "100.0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.fleet
			if f == nil {
				f = mapped()
			}
			trace := rowsOf(t, tt.row)
			m := Mapping{Words{tt.toFrontEnd, tt.fromFrontEnds}, Words{tt.toClass, tt.ofClasses}}
			_, marked, err := m.Mix(f, trace)
			if err != nil {
				t.Fatal(err)
			}
			mix := marked[trace.Rows[0].Marks]
			if diff := cmp.Diff(tt.want, proportions(&mix, f)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// rowsOf is a trace of one row that names a front-end and a class.
func rowsOf(t *testing.T, names string) *Trace {
	t.Helper()
	trace, err := ReadTrace(strings.NewReader("seconds,prompt_tokens,output_tokens,front-end,class\n0,1,1," + names + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestMappingRefuses(t *testing.T) {
	tests := []struct {
		name  string
		fleet *fleet.Fleet
		row   string
		m     Mapping
		want  string
	}{
		{"an unknown front-end", mapped(), "oslo,chat", Mapping{}, `line 2: the fleet has no front-end "oslo"; correct it, or map it to one of paris, rome with --map-front-end oslo=NAME`},
		{"an unknown class", mapped(), "paris,gpt", Mapping{}, `line 2: the fleet has no class "gpt"; correct it, or map it to one of chat, code with --map-class gpt=NAME`},
		{"mapped to what is not there", mapped(), "oslo,chat", Mapping{FrontEnds: Words{Names: map[string]string{"oslo": "bergen"}}}, `front-end "oslo" is mapped to "bergen", which the fleet does not have; name one of paris, rome`},
		{"a weight of nobody", mapped(), ",", Mapping{Classes: Words{Spread: map[string]float64{"gpt": 1}}}, `class "gpt" with the weight 1; name one of chat, code`},
		{"a negative weight", mapped(), ",", Mapping{Classes: Words{Spread: map[string]float64{"chat": -1}}}, `class "chat" with the weight -1`},
		{"no weight", mapped(), ",", Mapping{Classes: Words{Spread: map[string]float64{"chat": 0}}}, `no class has a weight above 0`},
		{"nothing to go by", silent(), ",", Mapping{}, "row 1 does not say all of where it belongs, and the fleet declares no demand to go by"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := tt.m.Mix(tt.fleet, rowsOf(t, tt.row)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: want an error with %q", err, tt.want)
			}
		})
	}
}

// A trace that is played comes row by row, as fast as asked, where its rows say; turns
// of a conversation repeat the ones before and come from one place.
func TestReplayPlaysARecording(t *testing.T) {
	trace, err := ReadTrace(strings.NewReader("seconds,front-end,class,prompt_tokens,output_tokens,conversation\n" +
		"0,rome,code,1000,24,x\n1,paris,chat,300,20,\n3,rome,code,2000,48,x\n"))
	if err != nil {
		t.Fatal(err)
	}
	mix, marked, err := (&Mapping{}).Mix(mapped(), trace)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Replay{Rows: trace.Rows, Mix: mix, Marked: marked, BlockTokens: trace.BlockTokens, Speed: 2}.New(7)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Past()) > 0 {
		t.Error("something was before the first row")
	}
	var got []Request
	for range 6 {
		r, _ := w.Next()
		got = append(got, r)
	}
	for i, want := range []struct {
		at              float64
		frontEnd, class int
		blocks          int
	}{{0, 1, 1, 8}, {0.5, 0, 0, 0}, {1.5, 1, 1, 16}, {2.25, 1, 1, 8}, {2.75, 0, 0, 0}, {3.75, 1, 1, 16}} {
		if g := got[i]; g.At != want.at || g.FrontEnd != want.frontEnd || g.Class != want.class || len(g.Context) != want.blocks {
			t.Errorf("request %d: %+v with %d blocks, want %+v", i, g, len(g.Context), want)
		}
	}
	if diff := cmp.Diff(got[0].Context, got[2].Context[:8]); diff != "" || got[0].Key != got[2].Key {
		t.Errorf("a turn does not repeat the one before: %s", diff)
	}
	if got[3].Key == got[0].Key || got[3].Context[0] == got[0].Context[0] || got[1].Key == got[4].Key {
		t.Error("the second time round the conversations are the same")
	}
}
