package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/fleet"
	"weir/simulate"
)

// A run is drawn in parts that are long enough to hold more than chance, unless there
// would be too few of them.
const (
	plotSeconds                = 5
	fewestParts, mostPlotParts = 24, 120
)

func plotParts(seconds float64) int {
	return int(min(mostPlotParts, max(fewestParts, seconds/plotSeconds)))
}

// simulated is what is told of a simulation.
type simulated struct {
	Fleet         string            `json:"fleet"`
	Traffic       string            `json:"traffic"`
	Rps           float64           `json:"rps"`
	Seconds       float64           `json:"seconds"`
	WarmUpSeconds float64           `json:"warmUpSeconds"`
	FirstSeed     uint64            `json:"firstSeed"`
	Seeds         int               `json:"seeds"`
	Policies      []simulatedPolicy `json:"policies"`
	Notes         []string          `json:"notes,omitempty"`

	priced bool
}

// simulatedPolicy is what came of one policy. A figure that nothing is known of is
// left out.
type simulatedPolicy struct {
	Policy      string              `json:"policy"`
	Requests    int                 `json:"requests"` // that were measured, of all seeds
	UnderWay    int                 `json:"underWay"` // at the end of all
	Figures     map[string]estimate `json:"figures"`
	Utilisation map[string]estimate `json:"utilisationPercent"` // by pool
	Links       []simulatedLink     `json:"links"`              // that were used under any seed
}

// simulatedLink is what went from a front-end to a pool. Its times are means over the
// seeds under which something did.
type simulatedLink struct {
	FrontEnd string   `json:"frontEnd"`
	Pool     string   `json:"pool"`
	Share    estimate `json:"sharePercent"` // of what the front-end let in
	TTFT     estimate `json:"ttftMeanSeconds"`
	EndToEnd estimate `json:"endToEndMeanSeconds"`
}

// estimate is a mean over seeds and half of its 95 % confidence interval, 0 under one
// seed.
type estimate struct {
	Value     float64 `json:"value"`
	PlusMinus float64 `json:"plusMinus,omitempty"`
}

// measures are what is shown of a policy.
func measures(priced bool) []simulate.Measure {
	out := simulate.Measures
	if priced {
		price := simulate.Measure{Name: "price", Unit: "s", Of: func(r *simulate.Result) float64 { return r.PriceSeconds }}
		out = append(out[:len(out):len(out)], price)
	}
	return out
}

// keyOf is what programs call a measure: "TTFT p95" in s is ttftP95Seconds.
func keyOf(m simulate.Measure) string {
	words := strings.Fields(strings.ToLower(m.Name))
	for i := range words[1:] {
		words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
	}
	return strings.Join(words, "") + map[string]string{"s": "Seconds", "%": "Percent"}[m.Unit]
}

func (s *simulation) summary(sc *scene, c *simulate.Comparison) *simulated {
	out := &simulated{
		Fleet: sc.file, Traffic: sc.traffic, Rps: sc.rps, Seconds: sc.seconds, WarmUpSeconds: sc.warmUp,
		FirstSeed: s.seed, Seeds: s.seeds, Notes: sc.notes,
	}
	for i := range sc.fleet.Pools {
		out.priced = out.priced || sc.fleet.Pools[i].PriceSeconds > 0
	}
	saved := 0.0
	for i, name := range c.Policies {
		p := simulatedPolicy{Policy: name, Figures: map[string]estimate{}, Utilisation: map[string]estimate{}}
		held := 0
		for _, r := range c.Results[i] {
			saved = max(saved, r.CacheSaves)
			p.Requests += r.Measured
			p.UnderWay += r.UnderWay
			held += r.Held
		}
		for _, m := range measures(out.priced) {
			put(p.Figures, keyOf(m), c.Of(i, m))
		}
		for k := range sc.fleet.Pools {
			id := sc.fleet.Pools[k].ID
			put(p.Utilisation, string(id), c.Of(i, simulate.Measure{Of: func(r *simulate.Result) float64 { return 100 * r.Utilisations[id] }}))
		}
		p.Links = linksOf(sc.fleet, c.Results[i])
		out.Policies = append(out.Policies, p)
		out.remark(name, p.UnderWay, held)
	}
	out.Notes = append(out.Notes, cacheNote(sc.fleet, saved)...)
	return out
}

func linksOf(f *fleet.Fleet, results []*simulate.Result) (out []simulatedLink) {
	for i := range f.FrontEnds {
		for k := range f.Pools {
			at := fleet.Link{FrontEnd: f.FrontEnds[i].ID, Pool: f.Pools[k].ID}
			var shares, ttft, endToEnd []float64
			for _, r := range results {
				l, used := r.Links[at]
				shares = append(shares, 100*l.Share)
				if used {
					ttft, endToEnd = append(ttft, l.TTFTSeconds), append(endToEnd, l.EndToEndSeconds)
				}
			}
			if len(ttft) > 0 {
				out = append(out, simulatedLink{string(at.FrontEnd), string(at.Pool), estimated(shares), estimated(ttft), estimated(endToEnd)})
			}
		}
	}
	return out
}

// remark notes what figures do not say.
func (s *simulated) remark(policy string, underWay, held int) {
	if underWay > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: %d requests were under way %v after the last one came; they count with their age", policy, underWay, drainSeconds*time.Second))
	}
	if held > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: no plan could be made in %d rounds, and the last one was held", policy, held))
	}
}

// muchSaved is what part of the work caches save before it is worth a word.
const muchSaved = 0.2

// cacheNote says that plans do not count what caches save where profiles do not say how
// warm theirs were.
func cacheNote(f *fleet.Fleet, saved float64) []string {
	silent := slices.IndexFunc(f.Pools, func(p fleet.Pool) bool { return !p.Profile.CacheStated })
	if !(saved > muchSaved) || silent < 0 {
		return nil
	}
	return []string{fmt.Sprintf("caches save up to %.0f %% of the work, and plans do not count it: the profile of pool %q does not say what of its reference was cached. "+
		"So plans take pools for up to %.1f times as busy as these engines are. Say so in the file: reference: {..., cachedTokens: 0} if no prompt had been sent before", 100*saved, f.Pools[silent].ID, 1/(1-saved))}
}

func put(in map[string]estimate, key string, e simulate.Estimate) {
	if math.IsNaN(e.Mean) || math.IsInf(e.Mean, 0) {
		return
	}
	in[key] = estimateOf(e)
}

func estimated(xs []float64) estimate { return estimateOf(simulate.EstimateOf(xs)) }

func estimateOf(e simulate.Estimate) estimate {
	out := estimate{Value: e.Mean}
	if !math.IsNaN(e.PlusMinus) {
		out.PlusMinus = e.PlusMinus
	}
	return out
}

func (e estimate) String() string {
	if e.PlusMinus == 0 {
		return fmt.Sprintf("%.3g", e.Value)
	}
	return fmt.Sprintf("%.3g ± %.2g", e.Value, e.PlusMinus)
}

func cell(of map[string]estimate, key string) string {
	if e, known := of[key]; known {
		return e.String()
	}
	return "-"
}

func simulatedTable(w *tabwriter.Writer, s *simulated) {
	seeds := fmt.Sprintf("seed %d", s.FirstSeed)
	if s.Seeds > 1 {
		seeds = fmt.Sprintf("seeds %d to %d, ±: 95 %% confidence", s.FirstSeed, s.FirstSeed+uint64(s.Seeds)-1)
	}
	row(w, "%s: %.3g RPS for %s, of which the first %s are not measured; %s", s.Traffic, s.Rps, span(s.Seconds), span(s.WarmUpSeconds), seeds)
	line := func(head string, of func(*simulatedPolicy) string) {
		fmt.Fprint(w, head)
		for i := range s.Policies {
			fmt.Fprintf(w, "\t%s", of(&s.Policies[i]))
		}
		fmt.Fprintln(w)
	}
	name := func(p *simulatedPolicy) string { return p.Policy }
	row(w, "")
	line("", name)
	line("requests", func(p *simulatedPolicy) string { return fmt.Sprint(p.Requests) })
	for _, m := range measures(s.priced) {
		line(m.Name+", "+m.Unit, func(p *simulatedPolicy) string { return cell(p.Figures, keyOf(m)) })
	}
	row(w, "")
	line("UTILISATION, %", name)
	for _, pool := range slices.Sorted(maps.Keys(s.Policies[0].Utilisation)) {
		line(pool, func(p *simulatedPolicy) string { return cell(p.Utilisation, pool) })
	}
	if len(s.Notes) > 0 {
		row(w, "\n%s", strings.Join(s.Notes, "\n"))
	}
}

// span writes a length of time for people.
func span(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond).String()
}

// plot draws a comparison into a folder.
func plot(dir string, c *simulate.Comparison, sc *scene) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var pools []string
	for i := range sc.fleet.Pools {
		pools = append(pools, string(sc.fleet.Pools[i].ID))
	}
	for name, chart := range simulate.Charts(c, pools, sc.warmUp) {
		if err := writeTo(filepath.Join(dir, name+".svg"), chart.WriteSVG); err != nil {
			return err
		}
	}
	return nil
}

func writeTo(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
