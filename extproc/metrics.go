package extproc

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// RegisterMetrics has the server's counters and its requests in flight collected.
func (s *Server) RegisterMetrics(r prometheus.Registerer) error {
	held := prometheus.GaugeOpts{Name: "weir_extproc_body_bytes", Help: "Memory that the bodies which are being read may take."}
	serving := prometheus.GaugeOpts{Name: "weir_extproc_serving", Help: "1 once the control plane was heard: there is a table to decide by."}
	return errors.Join(
		s.counters.register(r),
		s.registerSelection(r),
		r.Register(s.deciding),
		r.Register(s.keys.counted),
		s.registerAnswers(r),
		r.Register(inFlight{s}),
		r.Register(gates{s}),
		r.Register(newCounter("came_back", "Requests of conversations that were refused a moment ago.", "", "", &s.counters.CameBack)),
		r.Register(prometheus.NewGaugeFunc(held, func() float64 { return float64(s.bodies.held()) })),
		r.Register(prometheus.NewGaugeFunc(serving, func() float64 {
			if s.Serving() {
				return 1
			}
			return 0
		})),
	)
}

// label is one value of a label and what is counted under it.
type label struct {
	value string
	n     *atomic.Uint64
}

func (c *Counters) register(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("stream_faults", "Streams that ended in another way than requests do.", "", "", &c.StreamFaults)),
		r.Register(newCounter("requests_aliased", "Admitted requests whose model's own name was put in place of an alias.", "", "", &c.Aliased)),
		family(r, "requests", "Requests, by what became of them.", "outcome", []label{
			{"admitted", &c.Admitted},
			{"shed", &c.Shed},
			{"no_engine", &c.NoEngine},
			{"unknown_model", &c.UnknownModel},
			{"unreadable", &c.Unreadable},
			{"too_long", &c.TooLong},
			{"busy", &c.Busy},
			{"passed_through", &c.PassedThrough},
			{"no_table", &c.NoTable},
			{"undecided", &c.Undecided},
		}),
		family(r, "bodies_unread", "Requests whose body told no model, by the reason.", "reason", []label{
			{"content_type", &c.ContentType},
			{"encoding", &c.Encoding},
			{"too_large", &c.TooLarge},
			{"syntax", &c.Syntax},
			{"not_object", &c.NotObject},
			{"no_model", &c.NoModel},
			{"duplicate", &c.Duplicate},
			{"case", &c.Case},
			{"too_many", &c.TooMany},
			{"length", &c.Length},
			{"budget", &c.Budget},
		}),
	)
}

// family registers the counters of one name that differ in one label.
func family(r prometheus.Registerer, name, help, key string, labels []label) error {
	var errs []error
	for _, l := range labels {
		errs = append(errs, r.Register(newCounter(name, help, key, l.value, l.n)))
	}
	return errors.Join(errs...)
}

// newCounter returns a counter; an empty key is no label.
func newCounter(name, help, key, value string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_extproc_" + name + "_total", Help: help}
	if key != "" {
		opts.ConstLabels = prometheus.Labels{key: value}
	}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

func newDeciding() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_extproc_deciding_seconds",
		Help:    "Time from the message that settled a request to the answer, the reading of its body included; of one request in eight.",
		Buckets: prometheus.ExponentialBuckets(4e-6, 4, 10), // to 1 s, Envoy's patience
	})
}

// inFlight shows the open requests of each class.
type inFlight struct{ server *Server }

var inFlightDesc = prometheus.NewDesc("weir_extproc_requests_in_flight", "Admitted requests that are open.", []string{"class"}, nil)

// Describe implements [prometheus.Collector].
func (inFlight) Describe(out chan<- *prometheus.Desc) { out <- inFlightDesc }

// Collect implements [prometheus.Collector].
func (f inFlight) Collect(out chan<- prometheus.Metric) {
	for class, n := range f.server.ledger.open() {
		out <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(n), string(class))
	}
}

// open counts the open requests of each class: one that is idle has none.
func (l *ledger) open() map[fleet.ClassID]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := map[fleet.ClassID]int64{}
	for id, t := range l.classes {
		open[id] = t.open.Load()
	}
	return open
}
