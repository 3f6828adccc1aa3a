package admin

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"weir/fleet"
)

// Profile is what traffic says of a pool's profile.
type Profile struct {
	fleet.ProfileNews
	Words   []string `json:"words"`   // the drifts, one a line
	Command string   `json:"command"` // that fits a profile and shows it in full
}

// PoolHistory is all that a profile of a pool can be fitted to. Its JSON form is that
// of the fleet's values.
type PoolHistory struct {
	Pool    fleet.PoolID  `json:"pool"`
	Profile fleet.Profile `json:"profile"` // the fleet file's
	InUse   fleet.Profile `json:"inUse"`   // likewise, unless a fitted one stands in for it
	Since   time.Time     `json:"since"`   // from when on a profile is fitted to it; zero: to all of it
	Spans   []fleet.Span  `json:"spans"`   // oldest first; null: another pool was asked for
}

// FetchHistories asks the control plane whose admin API is at "host:port" for what a pool
// showed; empty: for what every pool showed. All pools are listed.
func FetchHistories(ctx context.Context, address string, pool fleet.PoolID) ([]PoolHistory, error) {
	path := "/profiles"
	if pool != "" {
		path += "?pool=" + url.QueryEscape(string(pool))
	}
	var all []PoolHistory
	return all, fetch(ctx, address, path, &all)
}

func newProfiles(s *fleet.State, news []fleet.ProfileNews, only fleet.PoolID) []PoolHistory {
	all := make([]PoolHistory, len(s.Fleet.Pools))
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		all[i] = PoolHistory{Pool: p.ID, Profile: p.Profile, InUse: p.Profile}
		if only == "" || only == p.ID {
			all[i].Spans = s.Pools[p.ID].History
		}
		if p.FileProfile != nil {
			all[i].Profile = *p.FileProfile
		}
		for j := range news {
			if news[j].Pool == p.ID {
				all[i].Since = news[j].Since
			}
		}
	}
	return all
}

// addProfiles adds the profiles of which there is anything to tell, and has those looked
// at that nothing takes care of.
func (s *Status) addProfiles(all []fleet.ProfileNews) {
	for i := range all {
		n := &all[i]
		if len(n.Drifts) == 0 && !n.Adopted && n.Why == "" {
			continue
		}
		p := Profile{ProfileNews: *n, Words: []string{}, Command: fitCommand("ADMIN", n.Pool)}
		for j := range n.Drifts {
			p.Words = append(p.Words, inWordsOf(&n.Drifts[j]))
		}
		s.Profiles = append(s.Profiles, p)
		if len(n.Drifts) > 0 && len(s.Attention) < maxAttention {
			s.Attention = append(s.Attention, fmt.Sprintf("pool %q: its profile is not true any more: %s", n.Pool, p.Words[0]))
		}
	}
}

func fitCommand(address string, pool fleet.PoolID) string {
	return fmt.Sprintf("weir fit --from %s --pool %s", address, pool)
}

// inWordsOf says how a profile has drifted.
func inWordsOf(d *fleet.Drift) string {
	what := "TTFT"
	if d.Signal == fleet.SignalTBT {
		what = "TBT"
	}
	return fmt.Sprintf("%s at %.0f–%.0f %% of load is %.2f× (±%.2f) what the profile says, for %v", what, 100*d.Low, 100*d.High, d.Ratio, d.StdErr, lasting(d.Until.Sub(d.Since)))
}

// lasting is a time as people say it.
func lasting(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f hours", d.Hours())
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	}
	return fmt.Sprintf("%.0f seconds", d.Seconds())
}
