package config

import (
	"weir/fleet"
)

func (r *reader) options(n node) {
	m := n.mapping("policy", "shadow", "tick", "demand", "headroom", "churn", "churnHalving", "minShare", "bodyLimit", "idle", "corsOrigins", "unreadable",
		"retryPercent", "retryFloor", "healthPath", "hold", "decisionHeader", "tenantHeader", "historyStep")
	r.fleet.Options = fleet.Options{
		Policy:       m.at("policy").oneOf(fleet.PolicyOptimal, fleet.Policies()...),
		Shadow:       shadow(m.at("shadow")),
		Tick:         m.at("tick").duration(defaultTick, minTick, maxTick),
		DeclaredOnly: m.at("demand").oneOf("measured", "measured", "declared") == "declared",
		Headroom:     m.at("headroom").fraction(defaultHeadroomPercent, 100),
		ChurnSeconds: m.at("churn").duration(defaultChurn, 0, maxChurn).Seconds(),
		ChurnHalving: m.at("churnHalving").duration(defaultChurnHalving, 0, maxChurnHalving),
		MinShare:     m.at("minShare").fraction(defaultMinSharePercent, 50),
		BodyLimit:    m.at("bodyLimit").bytes(defaultBodyLimit, minBodyLimit, maxBodyLimit),
		Idle:         m.at("idle").duration(defaultIdle, minIdle, maxIdle),
		Origins:      origins(m.at("corsOrigins")),
		Unreadable:   r.unreadable(m.at("unreadable")),
		RetryPercent: m.at("retryPercent").percent(defaultRetryPercent, 100),
		RetryFloor:   m.at("retryFloor").integer(defaultRetryFloor, 0, maxRetryFloor),
		HealthPath:   defaultHealthPath,
		TenantHeader: tenantHeader(m.at("tenantHeader")),
		HistoryStep:  m.at("historyStep").duration(defaultHistoryStep, minHistoryStep, maxHistoryStep),
		Hold:         m.at("hold").duration(defaultHold, 0, maxHold),
		TellDecision: m.at("decisionHeader").oneOf("false", "false", "true") == "true",
	}
	if path := m.at("healthPath"); path.present() {
		r.fleet.Options.HealthPath = requestPath(path)
	}
}

// origins reads where the pages come from whose scripts may ask.
func origins(n node) []string {
	items := n.someOf(maxListed)
	return distinct(items, func(item node) string {
		s := item.text()
		switch {
		case s == "", originPattern.MatchString(s):
		case s != anyOrigin:
			item.wrong("write it like https://app.example.org, or \"*\" for any", "%q is not the origin of a page", s)
		case len(items) > 1:
			item.wrong("keep it alone, or remove it", "\"*\" is any origin, and there are others")
		}
		return s
	})
}

// shadow reads the policy that plans beside the one in force; none is no policy.
func shadow(n node) string {
	if name := n.oneOf(fleet.NoPolicy, append(fleet.Policies(), fleet.NoPolicy)...); name != fleet.NoPolicy {
		return name
	}
	return ""
}

// fraction reads a percentage below a bound as a fraction of 1.
func (n node) fraction(fallback, below float64) float64 {
	v := n.percent(fallback, below)
	if v >= below {
		n.wrong("keep it below "+suffixed("%")(below), "%s is too much", suffixed("%")(v))
	}
	return v / 100
}

func (r *reader) unreadable(n node) fleet.ClassID {
	id := fleet.ClassID(n.text())
	if id != "" && len(r.fleet.Classes) > 0 && r.fleet.Class(id) == nil {
		n.wrong("name a class of this file", "there is no class %q", id)
	}
	return id
}

// tenantHeader reads the header that names the tenant; empty: none does.
func tenantHeader(n node) string {
	if !n.present() {
		return ""
	}
	return headerName(n, n.text())
}
