// Package fleet is the vocabulary that every other room speaks: what exists
// ([Fleet]), what is believed about it ([State]), what was decided ([Plan]) and
// what one front-end is told of that decision ([View]).
//
// It holds values and the arithmetic that belongs to them; no I/O, no clock, no
// goroutine, and nothing but the standard library. Times are seconds and rates
// are requests per second (RPS) throughout; where a Go type does not say so, the
// name does.
package fleet

import (
	"cmp"
	"slices"
	"time"
)

// Names of the things in a fleet file. They are distinct types so that a pool
// cannot be passed where a class is meant.
type (
	FrontEndID string
	PoolID     string
	ClassID    string
	// EngineID is the address of one replica, "ip:port".
	EngineID string
)

// Fleet is what exists: the content of a validated fleet file. Every slice is
// sorted by ID except Classes, whose order is the order in which their match
// rules are tried.
type Fleet struct {
	FrontEnds []FrontEnd
	Pools     []Pool
	Classes   []Class
	Network   Network
	Limits    []Limit
	Options   Options
}

// FrontEnd is a CPU cluster whose Envoys take in clients' requests.
type FrontEnd struct {
	ID     FrontEndID
	Listen string              // "ip:port" of the listener that its Envoys open
	Demand map[ClassID]float64 // declared RPS per class: the prior until arrivals are measured
}

// Pool is a set of replicas of one model (or its adapters) on one SKU in one place.
type Pool struct {
	ID           PoolID
	Region       string
	Models       []string          // names under which its engines serve
	EngineType   string            // vllm, sglang, trtllm, llamacpp, …
	Labels       map[string]string // free-form: sku, tier, jurisdiction
	Capabilities []string          // tools, vision, …
	Engines      []EngineID
	Leaving      []EngineID // those of Engines that discovery names no more: they end what they have
	Discovery    *Discovery // where Engines come from; nil: from the fleet file
	Awaited      bool       // nothing is known of Engines: discovery has not answered yet
	Profile      Profile
	AdoptFit     bool     // a profile that is fitted to traffic may stand in for the file's
	FileProfile  *Profile // that of the fleet file, for which Profile stands in; nil: Profile is
	TLS          *TLS     // nil: plain HTTP to the engines
	Metrics      Metrics  // zero: nothing is told of the engines' metrics pages
	PriceSeconds float64  // what a request there costs beside its latency (egress, tokens), as seconds
	MinRps       float64  // reference requests: plans give it that much work while there is any
	MaxRps       float64  // likewise: plans give it no more; 0: what its engines can do
}

// Limit bounds the share that a pool gets of the traffic of a front-end, of all its
// classes together or of one. It yields before a request is refused.
type Limit struct {
	FrontEnd FrontEndID
	Class    ClassID // empty: all that may use the pool, together
	Pool     PoolID
	Min, Max float64 // of the admitted traffic, 0–1
}

// Metrics is what an operator knows better of a pool's metrics pages.
type Metrics struct {
	Dialect string              // pages are read as this one only; empty: recognised
	Paths   []string            // where they are, likeliest first; empty: the dialect's
	Names   map[string][]string // series to read a field from, best first; other fields stay the dialect's
}

// TLS says how Envoy speaks TLS to a pool's engines. The paths are on the
// machine where Envoy runs.
type TLS struct {
	SNI      string
	CAFile   string
	CertFile string // client certificate; empty: none
	KeyFile  string
}

// Class is a model plus what a request demands: the commodity of the optimizer.
type Class struct {
	ID       ClassID
	Match    []Rule
	Requires Requirements
	Priority int           // higher is shed later
	Tokens   Tokens        // prior of a mean request; zero: the pool's reference request
	Weights  LatencyWeight // how much TTFT and TBT count in the plan
	Affinity []AffinityKey // first that exists names the conversation
}

// Rule is one way to belong to a class. Every non-empty part must match; a rule
// stands for one Envoy route.
type Rule struct {
	Host    string // without port, lower case
	Path    string // starts with '/'
	Exact   bool   // Path is the whole path, else a prefix
	Headers []HeaderRule
	Model   string // the model named in the request
	As      string // what engines call that model; empty: the same
	Body    BodyRule
}

// EngineModel is the rule's model as engines call it.
func (r *Rule) EngineModel() string { return cmp.Or(r.As, r.Model) }

// BodyRule is what a request's body must say beside the model. Envoy knows it from
// weir-extproc alone: a rule with one takes nothing while that is dead.
type BodyRule struct {
	Tools       bool // it offers tools
	Vision      bool // it holds an image
	ContextOver int  // tokens, as estimated from its text, that the prompt must exceed; 0: any
}

// Any says whether the rule asks for anything.
func (r BodyRule) Any() bool { return r != BodyRule{} }

// HeaderRule matches a request header by its exact value. Names are lower case.
type HeaderRule struct{ Name, Value string }

// Requirements are what a pool must offer to be eligible for a class.
type Requirements struct {
	Models       []string
	Capabilities []string
	Labels       map[string]string
	Regions      []string // any of them; empty: everywhere
}

// Tokens is the size of a mean request.
type Tokens struct {
	Prompt, Output float64
	Cached         float64 // of the prompt, in an engine's KV cache: nobody computes them
}

// CachedPart is the part of the prompt's tokens that was in a cache, 0–1.
func (t Tokens) CachedPart() float64 {
	if t.Prompt <= 0 {
		return 0
	}
	return min(1, max(0, t.Cached/t.Prompt))
}

// Computed is what of the prompt an engine computes: its last token at least.
func (t Tokens) Computed() float64 { return max(t.Prompt-max(0, t.Cached), min(t.Prompt, 1)) }

// LatencyWeight says how much of a second of TTFT and of decode time counts in
// the linear part of the plan.
type LatencyWeight struct{ TTFT, TBT float64 }

// AffinityKind says where an affinity key is read from.
type AffinityKind string

// The places that name a conversation.
const (
	AffinityHeader      AffinityKind = "header"      // a request header
	AffinityBody        AffinityKind = "body"        // a field of the JSON body, dotted path
	AffinityFingerprint AffinityKind = "fingerprint" // hash of model, system prompt and first user message
	// AffinityPrevious is the conversation of the response that a request follows by
	// its ID, and the engine that made and holds it.
	AffinityPrevious AffinityKind = "previousResponse"
)

// AffinityKey is one source of a conversation's name.
type AffinityKey struct {
	Kind AffinityKind
	Name string // header name in lower case, or dotted body path; empty for other kinds
}

// String writes the key as the fleet file does.
func (k AffinityKey) String() string {
	if k.Name == "" {
		return string(k.Kind)
	}
	return string(k.Kind) + ":" + k.Name
}

// Link is the way from one front-end to one pool.
type Link struct {
	FrontEnd FrontEndID
	Pool     PoolID
}

// Network is the round trip of each link.
type Network struct {
	Measured         bool // front-ends' own probes rule, RoundTripSeconds is the prior
	RoundTripSeconds map[Link]float64
}

// Options are the operator's choices for the whole fleet.
type Options struct {
	Policy       string        // how a plan is made: one of Policies
	Shadow       string        // a policy that plans beside it, for comparison; empty: none
	Tick         time.Duration // time between two rounds of the loop
	DeclaredOnly bool          // the file's demand, sizes and capacities rule, whatever is measured
	Headroom     float64       // share of each pool's capacity that plans leave free
	ChurnSeconds float64       // γ: half of what moving one request must gain, seconds
	ChurnHalving time.Duration // γ halves with each that nothing was moved; 0: it stays
	MinShare     float64       // smaller shares are given up where capacity allows
	BodyLimit    int64         // bytes of the largest request body
	Idle         time.Duration // a stream that is silent for so long is ended
	Origins      []string      // of pages from which browsers may ask; "*": any
	Unreadable   ClassID       // class of requests whose model cannot be read; empty: they get a 400
	RetryPercent float64       // the most retries allowed, % of the requests in flight
	RetryFloor   int           // the most of the retries that are allowed at one Envoy however little is in flight
	HealthPath   string        // path of the engines' health checks
	Hold         time.Duration // an active, long conversation stays so long at least where it is when weights move it; 0: it goes at once
	TellDecision bool          // clients are told in a header how their requests were decided
	HistoryStep  time.Duration // of what pools showed, one span is kept for each; 0: DefaultHistoryStep
	TenantHeader string        // names the tenant, among whom what is scarce is shared; empty: they are not told apart
}

// Eligible says whether a pool may serve a class at all: models, capabilities,
// labels and region. Readiness is not its business.
func (c *Class) Eligible(p *Pool) bool {
	return c.modelsIn(p) &&
		containsAll(p.Capabilities, c.Requires.Capabilities) &&
		labelled(p.Labels, c.Requires.Labels) &&
		(len(c.Requires.Regions) == 0 || slices.Contains(c.Requires.Regions, p.Region))
}

// Models lists the models that a request of the class may mean, as engines call
// them, once each, in the order of the file.
func (c *Class) Models() []string { return c.models((*Rule).EngineModel) }

// Names lists what clients may call the models of the class.
func (c *Class) Names() []string { return c.models(func(r *Rule) string { return r.Model }) }

func (c *Class) models(of func(*Rule) string) []string {
	var models []string
	add := func(m string) {
		if m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	for i := range c.Match {
		add(of(&c.Match[i]))
	}
	for _, m := range c.Requires.Models {
		add(m)
	}
	return models
}

func (c *Class) modelsIn(p *Pool) bool { return containsAll(p.Models, c.Models()) }

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

func labelled(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// FrontEnd returns the front-end of that name, or nil.
func (f *Fleet) FrontEnd(id FrontEndID) *FrontEnd {
	i := slices.IndexFunc(f.FrontEnds, func(x FrontEnd) bool { return x.ID == id })
	if i < 0 {
		return nil
	}
	return &f.FrontEnds[i]
}

// Pool returns the pool of that name, or nil.
func (f *Fleet) Pool(id PoolID) *Pool {
	i := slices.IndexFunc(f.Pools, func(x Pool) bool { return x.ID == id })
	if i < 0 {
		return nil
	}
	return &f.Pools[i]
}

// Class returns the class of that name, or nil.
func (f *Fleet) Class(id ClassID) *Class {
	i := slices.IndexFunc(f.Classes, func(x Class) bool { return x.ID == id })
	if i < 0 {
		return nil
	}
	return &f.Classes[i]
}
