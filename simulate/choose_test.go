package simulate

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"weir/envoy"
	"weir/extproc"
	"weir/fleet"
)

// The simulation sends every conversation where the real weir-extproc sends it, and
// refuses those that it refuses: with engines that have room, with some that are full,
// and when weights move conversations that may be held.
func TestChoosesAsWeirExtProcDoes(t *testing.T) {
	luck := rand.New(rand.NewPCG(1, 1))
	counts := map[string]int{}
	for round := range 60 {
		v, f, n := randomView(luck)
		server := extproc.New(zap.NewNop())
		d := duel{asks: serve(t, server), ours: newCrowd(len(f.Pools), len(n.engines), v.Hold.Seconds()), view: v, numbers: n, counts: counts}
		server.Swap(extproc.NewTable(v))
		d.choice = newChoice(&v.Classes[0], n)
		lavish := extproc.New(zap.NewNop())
		d.all = serve(t, lavish)
		v.Classes[0].Admitted = 1
		lavish.Swap(extproc.NewTable(v))
		d.ours.adopt([]choice{d.choice})
		for words := range 6 {
			if words > 1 {
				d.reweigh(luck, server)
			}
			if round%3 > 0 { // else nobody tells how full engines are
				levels := randomLevels(luck, f, int64(words+1))
				server.SwapLevels(levels, 0)
				d.ours.learn(0, levels, f, n)
			}
			for k := range 30 {
				d.turn(t, fmt.Sprintf("conversation %d of %d", k, round), k%3*longBytes/2)
			}
		}
	}
	for _, what := range []string{"refused", "own", "elsewhere", "other pool", "held"} {
		if counts[what] < 50 {
			t.Errorf("%d were %s: too few to judge by", counts[what], what)
		}
	}
}

// duel has the real weir-extproc and the simulation decide about the same.
type duel struct {
	asks    extprocv3.ExternalProcessorClient
	all     extprocv3.ExternalProcessorClient // refuses nobody, and so tells everybody's key
	ours    crowd
	choice  choice
	view    *fleet.View
	numbers *numbers
	counts  map[string]int
}

// reweigh has both told other weights.
func (d *duel) reweigh(luck *rand.Rand, server *extproc.Server) {
	for i := range d.view.Classes[0].Pools {
		d.view.Classes[0].Pools[i].Weight = uint32(luck.IntN(3) * 1_000_000)
	}
	d.view.Classes[0].Admitted = d.choice.admitted
	server.Swap(extproc.NewTable(d.view))
	d.choice = newChoice(&d.view.Classes[0], d.numbers)
	d.ours.adopt([]choice{d.choice})
	d.ours.refresh(0)
}

// turn is one of a conversation, with a body of so many bytes.
func (d *duel) turn(t *testing.T, name string, bytes int) {
	t.Helper()
	pick, _ := asked(t, d.asks, name, bytes)
	_, key := asked(t, d.all, name, bytes)
	if admits := d.choice.draw(key) < d.choice.admitted; admits != (pick != "") {
		t.Fatalf("%s is let in: %v, want %v at a fraction of %v", name, admits, pick != "", d.choice.admitted)
	}
	if pick == "" {
		d.counts["refused"]++
		return
	}
	home := d.choice.home(key)
	before := d.ours.recent[key^d.choice.salt]
	got := d.ours.place(0, &d.choice, key, bytes)
	switch {
	case got != d.numbers.engines[fleet.EngineID(pick)]:
		t.Fatalf("%s goes to engine %d, want %s of %+v, %+v", name, got, pick, d.view.Classes[0].Pools, d.ours)
	case got == home.first(key):
		d.counts["own"]++
	case before.turns > 0 && got == before.engine:
		d.counts["held"]++
	case d.choice.poolOf(home, key, got) == home:
		d.counts["elsewhere"]++
	default:
		d.counts["other pool"]++
	}
}

func TestChoosesNobodyWhereNobodyIs(t *testing.T) {
	crowd := newCrowd(1, 0, 0)
	c := newChoice(&fleet.ViewClass{ID: "chat", Pools: []fleet.ViewPool{{ID: "p", Weight: 1}}}, &numbers{})
	if got := crowd.place(0, &c, 1, 0); got != none {
		t.Errorf("engine = %d, want none", got)
	}
}

// randomView has pools with and without shares, and engines that are not ready.
func randomView(luck *rand.Rand) (*fleet.View, *fleet.Fleet, *numbers) {
	v := &fleet.View{
		FrontEnd: "here", BodyLimit: 1 << 20, Hold: time.Duration(luck.IntN(2)) * time.Hour,
		Routes:  []fleet.ViewRoute{{Class: "chat", Rule: fleet.Rule{Path: "/"}}},
		Classes: []fleet.ViewClass{{ID: "chat", Admitted: 1 - 0.3*luck.Float64(), Affinity: []fleet.AffinityKey{{Kind: fleet.AffinityHeader, Name: "x-session"}}}},
	}
	f, n := &fleet.Fleet{}, &numbers{map[fleet.PoolID]int32{}, map[fleet.EngineID]int32{}}
	for p := range 1 + luck.IntN(4) {
		pool := fleet.ViewPool{ID: fleet.PoolID(fmt.Sprint("pool", p)), Weight: uint32(luck.IntN(3) * 1_000_000)}
		n.pools[pool.ID] = int32(p)
		f.Pools = append(f.Pools, fleet.Pool{ID: pool.ID})
		for e := range 1 + luck.IntN(6) {
			id := fleet.EngineID(fmt.Sprintf("10.0.%d.%d:80", p, e))
			n.engines[id] = int32(len(n.engines))
			readiness := []fleet.Readiness{fleet.Unknown, fleet.Ready, fleet.Unready}[luck.IntN(3)]
			if p == 0 && e == 0 {
				readiness = fleet.Ready // somebody is
			}
			pool.Engines = append(pool.Engines, fleet.ViewEngine{ID: id, Readiness: readiness})
			f.Pools[p].Engines = append(f.Pools[p].Engines, id)
		}
		v.Classes[0].Pools = append(v.Classes[0].Pools, pool)
	}
	return v, f, n
}

// randomLevels tell of queues, of excess, and of nothing.
func randomLevels(luck *rand.Rand, f *fleet.Fleet, round int64) *fleet.Levels {
	l := &fleet.Levels{Round: round}
	for _, p := range f.Pools {
		levels := fleet.PoolLevels{ID: p.ID, Print: fleet.FingerprintOf(p.Engines)}
		for range p.Engines {
			e := fleet.EngineLevels{InFlight: fleet.Known(float64(luck.IntN(3) * luck.IntN(40)))}
			if luck.IntN(4) > 0 {
				e.Queued = fleet.Known(float64(luck.IntN(2) * luck.IntN(20)))
			}
			levels.Engines = append(levels.Engines, e)
		}
		if luck.IntN(5) > 0 {
			l.Pools = append(l.Pools, levels)
		}
	}
	return l
}

// serve has Envoy's protocol spoken with a server, which the test ends.
func serve(t *testing.T, s *extproc.Server) extprocv3.ExternalProcessorClient {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(extproc.ServerOptions()...)
	s.Register(g)
	go func() { _ = g.Serve(l) }() // ends with the server
	c, err := grpc.NewClient("passthrough:///extproc", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		g.Stop()
	})
	return extprocv3.NewExternalProcessorClient(c)
}

// asked has the server decide by the headers of a conversation's request: the
// engine that it picks, and the key. No engine: it refuses.
func asked(t *testing.T, c extprocv3.ExternalProcessorClient, name string, bytes int) (pick string, key uint64) {
	t.Helper()
	answer := exchange(t, c, name, bytes)
	for _, h := range answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		value := h.GetHeader().GetRawValue()
		switch h.GetHeader().GetKey() {
		case envoy.HeaderPick:
			address, err := base64.StdEncoding.DecodeString(string(value))
			if err != nil {
				t.Fatal(err)
			}
			pick = string(address)
		case envoy.HeaderAffinity:
			hash, err := hex.DecodeString(string(value))
			if err != nil || len(hash) != 8 {
				t.Fatalf("affinity %q: %v", value, err)
			}
			key = binary.BigEndian.Uint64(hash)
		}
	}
	if pick == "" && answer.GetImmediateResponse() == nil {
		t.Fatalf("neither picked nor refused: %v", answer)
	}
	return pick, key
}

// exchange sends one request, and waits until it counts as ended.
func exchange(t *testing.T, c extprocv3.ExternalProcessorClient, name string, bytes int) *extprocv3.ProcessingResponse {
	t.Helper()
	m := &corev3.HeaderMap{}
	for _, h := range [][2]string{{":method", "POST"}, {":path", "/"}, {":authority", "here"}, {"x-session", name}, {"content-length", strconv.Itoa(bytes)}} {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	stream, err := c.Process(t.Context())
	if err == nil {
		err = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{Headers: m, EndOfStream: true},
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("the stream ended with %v", err)
	}
	return answer
}
