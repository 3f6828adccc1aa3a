package control

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/fleet"
)

// RegisterMetrics has the loop's counters and the plan's figures collected.
func (l *Loop) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		l.Counters.register(r),
		r.Register(l.planning),
		r.Register(planFigures{l.Latest}),
		l.registerShadow(r),
	)
}

// RegisterMetrics has the keeper's counters collected.
func (k *Keeper) RegisterMetrics(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("plans_unsaved", "Plans that the state directory did not take.", &k.Failed)),
		r.Register(newCounter("orders_unsaved", "Operators' orders, brakes among them, that the state directory did not take.", &k.OrdersFailed)),
		r.Register(newCounter("histories_unsaved", "Times that the state directory did not take what pools showed.", &k.HistoriesFailed)),
	)
}

func (c *Counters) register(r prometheus.Registerer) error {
	return errors.Join(
		r.Register(newCounter("rounds", "Rounds of the loop.", &c.Rounds)),
		r.Register(newCounter("rounds_early", "Rounds that did not wait for their tick.", &c.RoundsEarly)),
		r.Register(newCounter("rounds_held", "Rounds that published the last plan again for want of a new one.", &c.RoundsHeld)),
		r.Register(newCounter("rounds_empty", "Rounds that had no plan to publish.", &c.RoundsEmpty)),
		r.Register(newCounter("plans_failed", "Rounds in which no plan could be made.", &c.PlansFailed)),
		r.Register(newCounter("plans_refused", "Rounds whose plan a guard refused.", &c.PlansRefused)),
		r.Register(newCounter("publish_errors", "Rounds whose plan did not reach every front-end's snapshot.", &c.PublishErrors)),
		r.Register(newCounter("events_dropped", "Reports and probes that the loop was too far behind to take.", &c.EventsDropped)),
		r.Register(newCounter("retry_budgets_kept", "Retry budgets that stayed as they were, the attempts of their stream not being measured any more, once a round.", &c.BudgetsKept)),
		r.Register(newCounter("brakes_put", "Brakes that operators put on, or renewed.", &c.BrakesPut)),
		r.Register(newCounter("brakes_released", "Brakes that operators took off.", &c.BrakesReleased)),
		r.Register(newCounter("brakes_expired", "Brakes whose time was up.", &c.BrakesExpired)),
		r.Register(newCounter("restored_dropped", "Plans of an earlier process that made no sense and were dropped.", &c.RestoredDropped)),
		r.Register(newCounter("orders_dropped", "Orders that operators gave an earlier process, that made no sense and were dropped.", &c.OrdersDropped)),
		r.Register(newCounter("starts_unprobed", "First rounds that did not wait for every engine's first probe.", &c.StartsUnprobed)),
	)
}

func newCounter(name, help string, n *atomic.Uint64) prometheus.Collector {
	opts := prometheus.CounterOpts{Name: "weir_control_" + name + "_total", Help: help}
	return prometheus.NewCounterFunc(opts, func() float64 { return float64(n.Load()) })
}

func newPlanning() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_control_planning_seconds",
		Help:    "Time that making a plan took.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 13), // to 4 s; the solver stops at 5
	})
}

// planFigures shows the last round: what is believed, what was decided.
type planFigures struct{ latest func() fleet.Round }

var (
	byStream = []string{"front_end", "class"}
	byShare  = []string{"front_end", "class", "pool"}
	byPool   = []string{"pool"}

	roundAge    = figure("round_age_seconds", "Time since the last round began.")
	planStatus  = figure("plan_status", "1 for the status of the plan in force.", "status")
	planPolicy  = figure("policy", "1 for the policy that makes the plans.", "policy")
	brakes      = figure("brakes", "Brakes that operators have put on and that are in force, by kind.", "kind")
	planAge     = figure("plan_age_seconds", "Time since the plan in force was made, unless by an earlier process.")
	meanLatency = figure("mean_latency_seconds", "Network and engine time that the plan expects of a mean request.")
	streams     = figure("streams", "Classes at front-ends, by how their demand is known.", "source")
	demand      = figure("demand_rps", "What clients ask for, as the plan takes it.", byStream...)
	shed        = figure("shed_rps", "What the plan refuses.", byStream...)
	retryPart   = figure("retry_budget_ratio", "Retries allowed at each Envoy, as a part of its requests in flight.", byStream...)
	retryFloor  = figure("retry_floor", "Retries allowed at once at each Envoy, however little is in flight.", byStream...)
	retryRoom   = figure("retry_room_rps", "Retries that engines have room for; absent: not measured.", byStream...)
	failing     = figure("attempts_failing_ratio", "Attempts at engines that are refused, fail or are lost; absent: not measured.", byStream...)
	planned     = figure("planned_rps", "What the plan gives a pool of a stream; absent: nothing.", byShare...)
	share       = figure("share_ratio", "Share of a stream's admitted traffic that a pool gets; absent: none.", byShare...)
	capacity    = figure("pool_capacity_rps", "Effective capacity of a pool for the planned mix.", byPool...)
	poolRps     = figure("pool_planned_rps", "What the plan gives a pool.", byPool...)
	utilisation = figure("pool_utilisation_ratio", "Planned work over the effective capacity of a pool.", byPool...)
	price       = figure("pool_price_seconds", "What one more RPS of a pool's capacity takes off the sum of RPS times seconds.", byPool...)
	replicaGain = figure("pool_replica_gain_requests", "Requests in flight, fleet-wide, that one more replica of a pool would save; while requests are refused, where capacity is short.", byPool...)
	engines     = figure("pool_engines", "Engines of a pool, by what is known of them.", "pool", "readiness")
	health      = figure("pool_health_ratio", "Health by which a pool's capacity is scaled; 1 where nothing is known.", byPool...)
	factor      = figure("pool_capacity_factor_ratio", "Evidence against a pool's profile, scaling its capacity; 1 where there is none.", byPool...)
)

func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_control_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (planFigures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		roundAge, planStatus, planPolicy, brakes, planAge, meanLatency, streams, demand, shed, retryPart, retryFloor, retryRoom, failing, planned, share,
		capacity, poolRps, utilisation, price, replicaGain, engines, health, factor,
	} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (f planFigures) Collect(out chan<- prometheus.Metric) {
	r := f.latest()
	if r.State == nil {
		return
	}
	g := gauges{out}
	g.set(roundAge, time.Since(r.At).Seconds())
	g.beliefs(r.State)
	for _, policy := range fleet.Policies() {
		g.is(planPolicy, policy, r.Choice.Policy.Name)
	}
	g.brakes(r.State.Brakes)
	if r.Plan != nil {
		if !r.Planned.IsZero() {
			g.set(planAge, time.Since(r.Planned).Seconds())
		}
		g.plan(r.Plan)
		g.worth(r.State, r.Plan)
	}
}

type gauges struct{ out chan<- prometheus.Metric }

func (g gauges) set(d *prometheus.Desc, value float64, labels ...string) {
	g.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// is sets 1 for the label that applies, and 0 for others.
func (g gauges) is(d *prometheus.Desc, label, applies string) {
	value := 0.0
	if label == applies {
		value = 1
	}
	g.set(d, value, label)
}

func (g gauges) brakes(all []fleet.Brake) {
	for _, kind := range fleet.BrakeKinds() {
		n := 0.0
		for i := range all {
			if all[i].Kind == kind {
				n++
			}
		}
		g.set(brakes, n, string(kind))
	}
}

func (g gauges) beliefs(s *fleet.State) {
	known := map[fleet.Source]float64{fleet.SourceArrivals: 0, fleet.SourceEnvoy: 0, fleet.SourceDeclared: 0}
	for st, d := range s.Demand {
		known[d.Source]++
		g.set(demand, d.Rps, string(st.FrontEnd), string(st.Class))
		g.retries(s, st)
	}
	for source, n := range known {
		g.set(streams, n, string(source))
	}
	for i := range s.Fleet.Pools {
		g.pool(s, &s.Fleet.Pools[i])
	}
}

func (g gauges) retries(s *fleet.State, st fleet.Stream) {
	d := s.RetriesOf(st)
	g.set(retryPart, d.Percent/100, string(st.FrontEnd), string(st.Class))
	g.set(retryFloor, float64(d.Floor), string(st.FrontEnd), string(st.Class))
	if a, ok := s.Attempts[st]; ok {
		g.set(retryRoom, d.RoomRps, string(st.FrontEnd), string(st.Class))
		g.set(failing, a.Failed, string(st.FrontEnd), string(st.Class))
	}
}

func (g gauges) pool(s *fleet.State, p *fleet.Pool) {
	known := map[fleet.Readiness]float64{fleet.Unknown: 0, fleet.Ready: 0, fleet.Unready: 0, fleet.Draining: 0}
	for _, e := range p.Engines {
		known[s.Readiness(p.ID, e)]++
	}
	for readiness, n := range known {
		g.set(engines, n, string(p.ID), readiness.String())
	}
	g.set(health, s.Health(p.ID), string(p.ID))
	g.set(factor, s.CapacityFactor(p.ID), string(p.ID))
}

func (g gauges) plan(p *fleet.Plan) {
	for _, status := range []fleet.Status{fleet.Optimal, fleet.Routed, fleet.Shedding, fleet.Held} {
		g.is(planStatus, string(status), string(p.Status))
	}
	g.set(meanLatency, p.MeanSeconds)
	for _, r := range p.Routes {
		g.set(shed, r.ShedRps, string(r.FrontEnd), string(r.Class))
		for _, s := range r.Shares {
			g.set(planned, s.Rps, string(r.FrontEnd), string(r.Class), string(s.Pool))
			g.set(share, s.Share, string(r.FrontEnd), string(r.Class), string(s.Pool))
		}
	}
	for _, q := range p.Pools {
		g.set(capacity, q.CapacityRps, string(q.Pool))
		g.set(poolRps, q.Rps, string(q.Pool))
		g.set(utilisation, q.Utilisation, string(q.Pool))
	}
}

// worth shows what capacity is worth. Only the optimum knows: of other policies' plans
// it is absent, not 0.
func (g gauges) worth(s *fleet.State, p *fleet.Plan) {
	if p.Policy != "" && p.Policy != fleet.PolicyOptimal {
		return
	}
	for i := range p.Pools {
		q := &p.Pools[i]
		g.set(price, q.PriceSeconds, string(q.Pool))
		g.set(replicaGain, s.ReplicaGain(q), string(q.Pool))
	}
}
