package extproc

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/extproc/wire"
	"weir/fleet"
)

// What a client is told is what was decided, and is told only where the fleet file
// has it told.
func TestTold(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^class="chat", key="([^"]+)", engine="([^"]+)", plan="v1"(?:, rank=(\d+))?, penalty=1\.0$`)
	for _, tell := range []bool{false, true} {
		v := following()
		v.TellDecision, v.Plan = tell, "v1"
		s, conn := serve(t, v)
		s.Answered("resp_1", "10.101.0.1:8000", 7)
		own := s.table.Load().classes[0].rank(7).own.id
		for _, tt := range []struct{ body, source string }{
			{`{"model":"small","conversation":"c"}`, "body:conversation"},
			{`{"model":"small","messages":[{"role":"user","content":"hi"}]}`, "fingerprint"},
			{`{"model":"small"}`, "random"},
			{`{"model":"small","previous_response_id":"resp_1"}`, "previousResponse"},
		} {
			c := open(t, conn)
			c.headers(post("/v1/responses"))
			got := c.body(tt.body)
			told, ok := got.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["decision"]
			if ok != tell {
				t.Errorf("%s: told %v, want %v", tt.body, ok, tell)
			}
			if !tell {
				continue
			}
			parts := form.FindStringSubmatch(told.GetStringValue())
			if parts == nil {
				t.Fatalf("%s: told %q", tt.body, told.GetStringValue())
			}
			pick := picked(t, got.GetRequestBody().GetResponse())
			if parts[1] != tt.source || parts[2] != pick {
				t.Errorf("%s: told %q, want source %s and engine %s", tt.body, parts[0], tt.source, pick)
			}
			if isOwn := tt.source != "previousResponse" || fleet.EngineID(pick) == own; isOwn != (parts[3] == "1") {
				t.Errorf("%s: told %q, its own is %s", tt.body, parts[0], own)
			}
		}
		if tell { // what they are multiplied by, where they are penalised
			all := map[fleet.EngineID]float64{}
			for _, p := range s.table.Load().pools {
				for i := range p.engines {
					all[p.engines[i].id] = 0.0625
				}
			}
			s.SetPenalties(all)
			c := open(t, conn)
			c.headers(post("/v1/responses"))
			told := c.body(`{"model":"small"}`).GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["decision"].GetStringValue()
			if !strings.HasSuffix(told, ", penalty=0.063") {
				t.Errorf("told %q of a penalty of 0.0625", told)
			}
		}
		if n := s.Counters().Followed.Load(); n != 1 {
			t.Errorf("followed %d times, want once", n)
		}
	}
}

// What a client is told of a refusal is how far its request was decided.
func TestToldOfRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		change     func(*fleet.View)
		status     int32
		want       string
	}{
		{
			"shed", `{"model":"small","conversation":"c"}`, func(v *fleet.View) { v.Classes[0].Admitted = 0 }, 429,
			`class="chat", key="body:conversation", plan="v1", reason="shed"`,
		},
		{
			"no engine", `{"model":"small"}`, func(v *fleet.View) { v.Classes[0].Pools = nil }, 503,
			`class="chat", key="random", plan="v1", reason="no_engine"`,
		},
		{"unknown model", `{"model":"large"}`, nil, 404, `plan="v1", reason="unknown_model"`},
		{"unreadable", `{"model":`, nil, 400, `plan="v1", reason="unreadable"`},
		{"not told", `{"model":`, func(v *fleet.View) { v.TellDecision = false }, 400, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := twoPools()
			v.TellDecision, v.Plan = true, "v1"
			if tt.change != nil {
				tt.change(v)
			}
			_, conn := serve(t, v)
			c := open(t, conn)
			c.headers(post("/v1/chat/completions"))
			got := c.body(tt.body)
			if status := got.GetImmediateResponse().GetStatus().GetCode(); int32(status) != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
			told := got.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["decision"].GetStringValue()
			if told != tt.want || tt.want == "" && got.DynamicMetadata != nil {
				t.Errorf("told %q, want %q", told, tt.want)
			}
		})
	}
}

// Ranks are the places in the ranking of a key's own pool.
func TestRankOf(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Classes[0].Pools = []fleet.ViewPool{viewPool("a", 1, 6), viewPool("b", 1, 2)}
	c := NewTable(v).classes[0]
	for key := range uint64(100) {
		s := c.rank(mix(key))
		seen := map[string]int{}
		for _, p := range c.pools {
			for i := range p.pool.engines {
				e := &p.pool.engines[i]
				rank := s.rankOf(e)
				switch {
				case rank == 0:
				case p.pool != s.home:
					t.Errorf("an engine of another pool has rank %d", rank)
				case rank == 1 && e != s.own:
					t.Errorf("another engine than its own has rank 1")
				}
				seen[strconv.Itoa(rank)]++
			}
		}
		if n := min(attempts, len(s.home.engines)); fmt.Sprint(seen["1"], len(seen)) != fmt.Sprint(1, n+1) {
			t.Errorf("ranks %v, want one each from 1 to %d", seen, n)
		}
	}
}

func BenchmarkTold(b *testing.B) {
	for _, tell := range []bool{false, true} {
		v := twoPools()
		v.TellDecision, v.Plan = tell, "9d0c2f61a3b45e78"
		table, h := NewTable(v), headOf(post("/", "x-session: s"))
		b.Run(fmt.Sprint(tell), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := table.decide(h, facts{model: "small"}, nil, 1)
				d.note(&wire.Admission{})
			}
		})
	}
}
