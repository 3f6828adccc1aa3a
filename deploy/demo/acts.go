package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"weir/fleet"
)

// act is a part of the demo: something happens, and one looks what comes of it.
type act struct {
	title   string
	at      fleet.FrontEndID // whose conversations tell
	begin   func(context.Context) error
	share   float64       // of the demo's length
	settle  time.Duration // after so long traffic is by the plan again, and is judged
	begun   time.Time
	ended   time.Time
	excused fleet.EngineID // streams that had begun there may be cut
}

// Times after which a change has reached traffic: a start's first full rounds; two
// ticks; two failed probes and two ticks; a dead weir-extproc's health checks.
const (
	afterStart  = 4 * time.Second
	afterChange = 4500 * time.Millisecond
	afterDeath  = 7 * time.Second
	afterLoss   = 2 * time.Second
)

// acts are played in this order. The hero is the front-end that asks for most: in
// the talk B, whose own pool cannot serve it all.
func (d *director) acts() []*act {
	hero, pool, victim := d.cast()
	engine := d.stage.Process("engine-" + string(victim))
	extproc := d.stage.Process("extproc-" + string(hero))
	plane := d.stage.Process("weir")
	acts := []*act{
		{title: "all is well", share: 0.22, settle: afterStart, begin: nothing},
		{
			title: fmt.Sprintf("pool %s loses a fifth of its capacity", pool.ID), share: 0.17, settle: afterChange,
			begin: func(ctx context.Context) error { return d.weaken(ctx, pool) },
		},
		{
			title: fmt.Sprintf("one of pool %s's engines is killed", pool.ID), share: 0.19, settle: afterDeath, excused: victim,
			begin: func(context.Context) error {
				d.dead[victim] = true
				return engine.Kill()
			},
		},
		{
			title: fmt.Sprintf("it is back; %s's ext_proc is killed", hero), share: 0.12, settle: afterLoss,
			begin: func(context.Context) error {
				delete(d.dead, victim)
				return errors.Join(engine.Start(), extproc.Kill())
			},
		},
		{
			title: "the ext_proc is back", share: 0.13, settle: afterDeath,
			begin: func(context.Context) error { return extproc.Start() },
		},
		{
			title: "the control plane is killed", share: 0.08, settle: 0,
			begin: func(context.Context) error { return plane.Kill() },
		},
		{
			title: "the control plane is back", share: 0.09, settle: 0,
			begin: func(context.Context) error { return plane.Start() },
		},
	}
	for _, a := range acts {
		a.at = hero
	}
	return acts
}

func nothing(context.Context) error { return nil }

// cast chooses the front-end that asks for most, the pool nearest to it, and an
// engine of that pool.
func (d *director) cast() (fleet.FrontEndID, *fleet.Pool, fleet.EngineID) {
	f := d.stage.Fleet
	hero := &f.FrontEnds[0]
	for i := range f.FrontEnds {
		if total(f.FrontEnds[i].Demand) > total(hero.Demand) {
			hero = &f.FrontEnds[i]
		}
	}
	nearest := &f.Pools[0]
	for i := range f.Pools {
		if d.roundTrip(hero.ID, f.Pools[i].ID) < d.roundTrip(hero.ID, nearest.ID) {
			nearest = &f.Pools[i]
		}
	}
	return hero.ID, nearest, nearest.Engines[0]
}

func total(demand map[fleet.ClassID]float64) float64 {
	sum := 0.0
	for _, rps := range demand {
		sum += rps
	}
	return sum
}

func (d *director) roundTrip(fe fleet.FrontEndID, p fleet.PoolID) float64 {
	return d.stage.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe, Pool: p}]
}

// weakened is what is left of the capacity of a pool that loses some.
const weakened = 0.8

// weaken takes a fifth of a pool's capacity: its engines slow down, and an operator
// says so in the fleet file.
func (d *director) weaken(ctx context.Context, p *fleet.Pool) error {
	for _, e := range p.Engines {
		if err := slowDown(ctx, e); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(d.stage.FleetFile)
	if err != nil {
		return err
	}
	changed, err := withCapacity(string(text), p.ID, weakened*p.Profile.CapacityRps)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.stage.FleetFile, []byte(changed), 0o644); err != nil {
		return err
	}
	p.Profile.CapacityRps *= weakened // as the view has it
	return d.stage.Process("weir").Hangup()
}

func slowDown(ctx context.Context, e fleet.EngineID) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+string(e)+"/faults", bytes.NewReader([]byte(`{"slow":1.25}`)))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close() // an engine that is not a mock has no faults to set
}

var (
	ownCapacity   = regexp.MustCompile(`capacity: [0-9.]+ rps`)
	sharedProfile = regexp.MustCompile(`profile: (\*\w+)`)
)

// withCapacity sets the capacity of a pool in a fleet file's text. A profile that
// several pools share is changed for this one alone.
func withCapacity(text string, p fleet.PoolID, rps float64) (string, error) {
	start := strings.Index(text, "\n  - name: "+string(p)+"\n    region:")
	if start < 0 {
		return "", fmt.Errorf("pool %q is not written as the demo expects it", p)
	}
	pool := text[start+1:]
	if end := strings.Index(pool, "\n  - name: "); end >= 0 {
		pool = pool[:end]
	}
	capacity := fmt.Sprintf("capacity: %g rps", rps)
	changed := sharedProfile.ReplaceAllString(pool, "profile: {<<: $1, "+capacity+"}")
	if changed == pool {
		changed = ownCapacity.ReplaceAllString(pool, capacity)
	}
	if changed == pool {
		return "", fmt.Errorf("pool %q has no capacity that the demo can change", p)
	}
	return strings.Replace(text, pool, changed, 1), nil
}
