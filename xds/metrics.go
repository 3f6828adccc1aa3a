package xds

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// RegisterMetrics has the server's totals and its clients' progress collected.
func (s *Server) RegisterMetrics(r prometheus.Registerer) error { return r.Register(serverMetrics{s}) }

// RegisterMetrics has the client's counters collected.
func (c *Client) RegisterMetrics(r prometheus.Registerer) error {
	connected := prometheus.GaugeOpts{Name: "weir_xds_client_connected", Help: "1 while the control plane answers."}
	return errors.Join(
		r.Register(prometheus.NewGaugeFunc(connected, func() float64 {
			if c.Counters.Connected.Load() {
				return 1
			}
			return 0
		})),
		r.Register(newCounter("client_streams", "Attempts to follow the control plane; 1 while it was never away.", &c.Counters.Streams)),
		r.Register(newCounter("client_updates", "Responses of the control plane that were taken.", &c.Counters.Updates)),
		r.Register(newCounter("client_refused", "Responses that were refused; the last good resources stay.", &c.Counters.Refused)),
	)
}

// RegisterMetrics has the reporter's counters collected.
func (p *Reporter) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("reporter_streams", "Attempts to report load; 1 while the control plane was never away.", &p.Counters.Streams)),
		r.Register(newCounter("reporter_answered", "Load reports that the control plane took.", &p.Counters.Answered)),
		r.Register(newCounter("reporter_repeated", "Load reports sent again for want of an answer.", &p.Counters.Repeated)),
	)
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_xds_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

// totals are the server's counters.
var totals = []struct {
	desc *prometheus.Desc
	of   func(*Counts) uint64
}{
	{desc("pushes_total", "Responses sent."), func(c *Counts) uint64 { return c.Pushes }},
	{desc("nacks_total", "Responses that a client refused."), func(c *Counts) uint64 { return c.Nacks }},
	{desc("refused_total", "Streams turned away."), func(c *Counts) uint64 { return c.Refused }},
	{desc("forced_total", "Routes sent to a client that was silent about their clusters."), func(c *Counts) uint64 { return c.Forced }},
	{desc("held_total", "Times that routes were held back because of a NACK."), func(c *Counts) uint64 { return c.Held }},
	{desc("unanswered_total", "Responses forgotten that a client never answered."), func(c *Counts) uint64 { return c.Unanswered }},
	{desc("not_set_total", "Changes of what a client is served that failed."), func(c *Counts) uint64 { return c.NotSet }},
	{desc("batches_forgotten_total", "Times that it was forgotten which load reports were taken, there being too many clients."), func(c *Counts) uint64 { return c.BatchesForgotten }},
	{desc("reports_total", "Load reports taken."), func(c *Counts) uint64 { return c.Reports }},
	{desc("reports_unknown_total", "Load reports of front-ends that do not exist."), func(c *Counts) uint64 { return c.ReportsUnknown }},
	{desc("reports_repeated_total", "Load reports that were taken before."), func(c *Counts) uint64 { return c.ReportsRepeated }},
	{desc("reports_dropped_total", "Load reports that found no room before the loop."), func(c *Counts) uint64 { return c.ReportsDropped }},
	{desc("measures_refused_total", "Measures in load reports that cannot be true, left out."), func(c *Counts) uint64 { return c.MeasuresRefused }},
}

// Unknown front-ends name themselves, so they are counted without a label.
var (
	connectedDesc = desc("clients", "Connected clients of a front-end.", "front_end", "role")
	behindDesc    = desc("clients_behind", "Connected clients that have not taken all that they were sent.", "front_end", "role")
	refusingDesc  = desc("clients_refusing", "Connected clients that refused something and have not taken its successor.", "front_end", "role")
	lagDesc       = desc("lag_seconds", "For how long the slowest client has been behind; 0: none is.", "front_end", "role")
	unknownDesc   = desc("clients_unknown", "Connected clients of front-ends that do not exist.")
	reportingDesc = desc("load_streams", "Clients that report load.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_xds_"+name, help, labels, nil)
}

type serverMetrics struct{ server *Server }

// Describe implements [prometheus.Collector].
func (serverMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, t := range totals {
		out <- t.desc
	}
	for _, d := range []*prometheus.Desc{connectedDesc, behindDesc, refusingDesc, lagDesc, unknownDesc, reportingDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m serverMetrics) Collect(out chan<- prometheus.Metric) {
	counts := m.server.Counts()
	for _, t := range totals {
		out <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(t.of(&counts)))
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	groups, unknown, reporting := m.server.groups()
	gauge(unknownDesc, float64(unknown))
	gauge(reportingDesc, float64(reporting))
	for k, g := range groups {
		gauge(connectedDesc, float64(g.connected), string(k.frontEnd), string(k.role))
		gauge(behindDesc, float64(g.behind), string(k.frontEnd), string(k.role))
		gauge(refusingDesc, float64(g.refusing), string(k.frontEnd), string(k.role))
		gauge(lagDesc, g.lagSeconds, string(k.frontEnd), string(k.role))
	}
}

// group is the clients of one role at one front-end.
type group struct {
	connected, behind, refusing int
	lagSeconds                  float64
}

type groupKey struct {
	frontEnd fleet.FrontEndID
	role     fleet.Role
}

// groups counts the clients of the front-ends that exist, those without a client
// included, and of all others together.
func (s *Server) groups() (groups map[groupKey]*group, unknown, reporting int) {
	groups = map[groupKey]*group{}
	s.mu.Lock()
	for id := range s.frontEnds {
		groups[groupKey{id, fleet.RoleEnvoy}] = &group{}
		groups[groupKey{id, fleet.RoleExtProc}] = &group{}
	}
	reporting = s.reporting
	s.mu.Unlock()
	clients := s.Clients()
	for i := range clients {
		c := &clients[i]
		g := groups[groupKey{c.FrontEnd, c.Role}]
		if !c.Known || g == nil {
			unknown++
			continue
		}
		g.add(c)
	}
	return groups, unknown, reporting
}

func (g *group) add(c *fleet.Client) {
	g.connected++
	if !c.UpToDate() {
		g.behind++
	}
	if c.Refusing() {
		g.refusing++
	}
	g.lagSeconds = max(g.lagSeconds, c.LagSeconds())
}
