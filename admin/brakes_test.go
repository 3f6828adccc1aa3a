package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

// braking serves a control plane that notes what it is ordered, and returns its address.
func braking(t *testing.T, fails error) (address string, orders *[]string) {
	t.Helper()
	orders = &[]string{}
	from := testSources()
	from.Brake = func(b fleet.Brake, hold time.Duration, force bool) (fleet.Braking, error) {
		*orders = append(*orders, fmt.Sprintf("%v %v %v by %s %q for %v, force %v", b.BrakeTarget, b.Share, b.Rps, b.Owner, b.Note, hold, force))
		b.Since = time.Now()
		b.Until = b.Since.Add(hold)
		was := b
		was.Owner, was.Note = "ann@ops", "the final"
		return fleet.Braking{Was: &was, Brakes: []fleet.Brake{b}}, fails
	}
	from.Release = func(t fleet.BrakeTarget, owner string) (fleet.Braking, error) {
		*orders = append(*orders, fmt.Sprintf("release %v by %s", t, owner))
		return fleet.Braking{}, fails
	}
	server := httptest.NewServer(Handler(ControlPlane(from)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), orders
}

// putOn has a round made under brakes.
func putOn(r *fleet.Round, brakes ...fleet.Brake) {
	r.State.Brake(brakes)
	r.Brakes = brakes
	r.Plan.Brakes = fleet.PlanningBrakes(brakes)
}

func posted(t *testing.T, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := w.Body.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, w.Body.String()
}

func TestBrakeOrders(t *testing.T) {
	for body, want := range map[string]string{
		`{"kind":"drain","pool":"p","owner":"a@b","note":"disk","seconds":60,"force":true}`:   `drain of pool "p" 0 0 by a@b "disk" for 1m0s, force true`,
		`{"kind":"drain","engine":"10.0.0.1:8000","owner":"a@b"}`:                             `drain of engine 10.0.0.1:8000 0 0 by a@b "" for 30m0s, force false`,
		`{"kind":"freeze","owner":"a@b"}`:                                                     `freeze 0 0 by a@b "" for 30m0s, force false`,
		`{"kind":"pin","frontEnd":"eu","class":"chat","pool":"p","share":0.25,"owner":"a@b"}`: `pin of eu/chat to pool "p" 0.25 0 by a@b "" for 30m0s, force false`,
		`{"kind":"pin","frontEnd":"eu","pool":"p","share":0,"owner":"a@b"}`:                   `pin of eu to pool "p" 0 0 by a@b "" for 30m0s, force false`,
		`{"kind":"limit","class":"chat","rps":0,"owner":"a@b"}`:                               `limit of class "chat" 0 0 by a@b "" for 30m0s, force false`,
		`{"kind":"pin","frontEnd":"eu","pool":"p","lift":true,"owner":"a@b"}`:                 `release pin of eu to pool "p" by a@b`,
		`{"kind":"freeze","lift":true}`:                                                       `release freeze by `,
	} {
		address, orders := braking(t, nil)
		status, got := posted(t, "http://"+address+"/brakes", body)
		if status != 200 || len(*orders) != 1 || (*orders)[0] != want {
			t.Errorf("%s: %d, %q, want %s", body, status, *orders, want)
		}
		if !strings.Contains(body, "lift") && (!strings.Contains(got, "given, in force from the next round on") || !strings.Contains(got, `"replaced"`) || !strings.Contains(got, `"the final"`)) {
			t.Errorf("%s: answered %s", body, got)
		}
	}
}

// What is not understood whole is refused, and nobody is ordered anything.
func TestBadBrakeOrders(t *testing.T) {
	for body, want := range map[string]string{
		``:                                "the body is empty: send a JSON object",
		`drain`:                           "the body is not JSON: invalid character",
		`{"kind":"freeze"`:                "the body is not JSON",
		`{"kind":`:                        "the body is not JSON",
		`[]`:                              "the body is no JSON object",
		`{}`:                              `there is no brake \"\": name one of drain, freeze, pin, limit`,
		`{"kind":"brake"}`:                `there is no brake \"brake\"`,
		`{"kind":"drain","pol":"p"}`:      `unknown key \"pol\": write any of kind, frontEnd, class, pool, engine, share, rps, seconds, owner, note, force, lift`,
		`{"kind":"freeze","Owner":"eve"}`: `unknown key \"Owner\"`,
		`{"kind":"freeze","owner":"a","owner":"eve"}`:                      `the key \"owner\" comes twice`,
		`{"kind":"freeze","owner":"a","own\u0065r":"e"}`:                   `the key \"owner\" comes twice`,
		`{"kind":"freeze"} {}`:                                             "more behind the order",
		`{"kind":"freeze"}x`:                                               "more behind the order",
		`{"kind":"drain","pool":3}`:                                        "pool: it cannot be a number",
		`{"kind":"drain","share":0.5}`:                                     "share does not belong",
		`{"kind":"freeze","rps":1}`:                                        "rps does not belong",
		`{"kind":"limit","force":true}`:                                    "force does not belong",
		`{"kind":"pin","pool":"p"}`:                                        "a pin needs a share",
		`{"kind":"limit","class":"c"}`:                                     "a limit needs rps",
		`{"kind":"freeze","seconds":0}`:                                    "seconds: 0: want more than 0 and 86400 at most",
		`{"kind":"freeze","seconds":1e9}`:                                  "seconds: 1e+09",
		`{"kind":"freeze","seconds":-5}`:                                   "seconds: -5",
		`{"kind":"pin","lift":true,"share":1}`:                             "share does not belong",
		`{"kind":"freeze","lift":true,"note":"why"}`:                       "note does not belong",
		`{"kind":"freeze","lift":true,"seconds":5}`:                        "seconds does not belong",
		`{"kind":"drain","pool":"p","until":"2027-01-01"}`:                 `unknown key \"until\"`,
		`{"kind":"freeze","note":"` + strings.Repeat("x", maxOrder) + `"}`: "the body cannot be read",
	} {
		address, orders := braking(t, nil)
		status, got := posted(t, "http://"+address+"/brakes", body)
		if status/100 != 4 || !strings.Contains(got, want) || len(*orders) > 0 {
			t.Errorf("%.100s: %d %.300s, orders %q; want %q", body, status, got, *orders, want)
		}
	}
}

// A mistake that only the control plane sees is the asker's all the same.
func TestRefusedBrakes(t *testing.T) {
	address, _ := braking(t, fmt.Errorf("%w: there is no pool", fleet.ErrBrake))
	_, err := OrderBrake(t.Context(), address, BrakeOrder{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeFreeze}, Owner: "a"})
	if err == nil || err.Error() != "brake refused: there is no pool" {
		t.Errorf("%v", err)
	}
	if status, _ := posted(t, "http://"+address+"/brakes", `{"kind":"freeze","owner":"a"}`); status != http.StatusBadRequest {
		t.Errorf("answered %d", status)
	}
	address, orders := braking(t, nil)
	for _, path := range []string{"/brakes?force=true", "/policy?x=1"} {
		if status, got := posted(t, "http://"+address+path, `{"kind":"freeze","owner":"a"}`); status != http.StatusBadRequest || !strings.Contains(got, "in the query") || len(*orders) > 0 {
			t.Errorf("POST %s: %d %s", path, status, got)
		}
	}
}

func TestFetchBrakes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	from := testSources()
	from.Latest = func() fleet.Round {
		r := testRound()
		putOn(&r, fleet.Brake{BrakeTarget: fleet.BrakeTarget{Kind: fleet.BrakeFreeze}, Owner: "a", Since: noon, Until: time.Now().Add(time.Hour)})
		return r
	}
	server := httptest.NewServer(Handler(ControlPlane(from)))
	defer server.Close()
	got, err := FetchBrakes(ctx, strings.TrimPrefix(server.URL, "http://"))
	if err != nil || len(got.Brakes) != 1 || got.Brakes[0].Kind != fleet.BrakeFreeze || got.Brakes[0].SecondsLeft < 3500 || got.Brakes[0].SecondsLeft > 3600 {
		t.Errorf("%+v (%v)", got, err)
	}
}

// Status says of each brake who, what, why, for how long, what comes of it, and how it
// ends.
func TestStatusOfBrakes(t *testing.T) {
	target := func(kind fleet.BrakeKind, frontEnd fleet.FrontEndID, class fleet.ClassID, pool fleet.PoolID, engine fleet.EngineID) fleet.BrakeTarget {
		return fleet.BrakeTarget{Kind: kind, FrontEnd: frontEnd, Class: class, Pool: pool, Engine: engine}
	}
	frozen := fleet.Brake{BrakeTarget: target(fleet.BrakeFreeze, "", "", "", "")}
	for name, c := range map[string]struct {
		brake  fleet.Brake
		change func(*fleet.Round)
		want   string
	}{
		"an engine": {fleet.Brake{BrakeTarget: target(fleet.BrakeDrain, "", "", "", "p1"), Note: "disk"}, func(r *fleet.Round) {
			st := r.State.Pools["p"]
			st.Signals.Open = map[fleet.EngineID]float64{"p1": 3, "p2": 4}
			r.State.Pools["p"] = st
		}, "drain of engine p1 by ann@ops, 30m0s left (disk): 1 draining, 3 requests open; `weir undrain p1` ends it"},
		"a pool":                   {fleet.Brake{BrakeTarget: target(fleet.BrakeDrain, "", "", "p", "")}, nil, "drain of pool \"p\" by ann@ops, 30m0s left: 2 draining; `weir undrain p` ends it"},
		"a pool that is not ready": {fleet.Brake{BrakeTarget: target(fleet.BrakeDrain, "", "", "gone", "")}, nil, "no effect: no engine of it is ready"},
		"a freeze":                 {frozen, nil, "freeze by ann@ops, 30m0s left; `weir unfreeze` ends it"},
		"a limit":                  {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", ""), Rps: 50}, nil, "limit of class \"chat\", 50 RPS by ann@ops, 30m0s left: refuses nothing: 35 RPS are asked for; `weir unlimit chat` ends it"},
		"a limit that binds": {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", ""), Rps: 20}, func(r *fleet.Round) {
			r.Plan.Routes[0].ShedRps = 15
		}, ": 15 of 35 RPS are refused;"},
		"a limit of what is gone": {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "gone", "", "")}, nil, "the fleet file does not name it any more"},
		"a pin that is kept":      {fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "", "p", ""), Share: 1}, nil, "pin of eu to pool \"p\", 100 % by ann@ops, 30m0s left; `weir unpin eu p` ends it"},
		"a pin that is not kept": {
			fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "chat", "p", ""), Share: 0.5},
			nil,
			"pin of eu/chat to pool \"p\", 50 % by ann@ops, 30m0s left: not kept: eu/chat gets 100.0 %; the pool is asked for 88 % of its capacity; `weir unpin eu/chat p` ends it",
		},
		"a pin of less beside no other": {fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "chat", "p", ""), Share: 0.5}, func(r *fleet.Round) {
			r.State.Pools["q"] = fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{"q1": fleet.Unready}}
		}, "not kept: eu/chat gets 100.0 %, no other pool being ready;"},
		"a pin that a pool has no room for": {fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "chat", "p", ""), Share: 1}, func(r *fleet.Round) {
			r.Plan.Routes[0].Shares[0].Share, r.Plan.Pools[0].Utilisation = 0.8, 1
		}, "not kept: eu/chat gets 80.0 %, the pool being full; the pool is asked for 100 %"},
		"a pin that overloads": {fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "chat", "p", ""), Share: 1}, func(r *fleet.Round) {
			r.Plan.Pools[0].Utilisation = 1.4
		}, "left: the pool is asked for 140 % of its capacity;"},
		"a pin to no ready engine": {fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "chat", "q", ""), Share: 1}, func(r *fleet.Round) {
			r.State.Pools["q"] = fleet.PoolState{Engines: map[fleet.EngineID]fleet.Readiness{"q1": fleet.Unready}}
		}, "no effect: no engine of \"q\" is ready"},
		"a pin while frozen": {fleet.Brake{BrakeTarget: target(fleet.BrakePin, "eu", "chat", "q", ""), Share: 1}, func(r *fleet.Round) {
			r.State.Brakes = fleet.WithBrake(r.State.Brakes, frozen)
			r.Plan.Status, r.Plan.Brakes = fleet.Held, nil
		}, "it waits for a new plan, the last one being held"},
		"a limit that waits over a restart": {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", ""), Rps: 50}, func(r *fleet.Round) {
			r.Planned, r.Plan.Status = time.Time{}, fleet.Held
			r.Plan.Brakes = []fleet.Brake{{BrakeTarget: r.Brakes[0].BrakeTarget, Rps: 20}}
		}, "it waits for a new plan, the last one being held"},
		"a limit that a frozen plan has, renewed since": {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", ""), Rps: 20}, func(r *fleet.Round) {
			r.Planned, r.Plan.Status = noon.Add(-2*time.Hour), fleet.Held
			r.Plan.Routes[0].ShedRps = r.Plan.Routes[0].DemandRps / 2
			r.State.Demand[fleet.Stream{FrontEnd: "eu", Class: "chat"}] = fleet.Demand{Rps: 100}
		}, ": 50 of 105 RPS are refused;"},
		"a freeze with a limit that is off": {frozen, func(r *fleet.Round) {
			r.Plan.Brakes = []fleet.Brake{{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", ""), Rps: 20}}
		}, "left: the plan that stays still has the limit of class \"chat\", 20 RPS; `weir unfreeze` ends it"},
		"a new one": {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", "")}, func(r *fleet.Round) {
			r.At, r.State.Brakes = noon.Add(-time.Hour), nil
		}, "given, in force from the next round on"},
		"one that is renewed": {fleet.Brake{BrakeTarget: target(fleet.BrakeLimit, "", "chat", "", ""), Rps: 50}, func(r *fleet.Round) {
			r.At = noon.Add(-time.Hour)
		}, "refuses nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRound()
			c.brake.Owner, c.brake.Since, c.brake.Until = "ann@ops", noon.Add(-time.Minute), noon.Add(30*time.Minute)
			putOn(&r, c.brake)
			if c.change != nil {
				c.change(&r)
			}
			s := newStatus(noon, r, testClients(), "", "")
			if len(s.Brakes) == 0 || !strings.Contains(strings.Join(s.Attention, "\n"), c.want) {
				t.Errorf("%d brakes, attention %q, want %q", len(s.Brakes), s.Attention, c.want)
			}
		})
	}
	r := testRound()
	putOn(&r, fleet.Brake{BrakeTarget: target(fleet.BrakeDrain, "", "", "", "p1"), Owner: "a", Since: noon, Until: noon.Add(time.Hour)})
	if diff := cmp.Diff(Pool{Pool: "p", Engines: 2, Ready: 1, Draining: 1, Plan: &r.Plan.Pools[0]}, newStatus(noon, r, testClients(), "", "").Pools[0]); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
}
