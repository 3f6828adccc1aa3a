package config

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"weir/fleet"
)

// otherEngine is an engine of which only the health is asked, unless the file tells
// how its metrics are read.
const otherEngine = "other"

// engineTypes are the engines whose metrics Weir can read, and any other.
var engineTypes = append(slices.Clone(dialects), otherEngine)

func (r *reader) pools(n node) {
	for i, item := range n.someOf(maxPools) {
		r.pool(item, i)
	}
}

func (r *reader) pool(n node, i int) {
	before := r.doc.faults()
	m := n.thing("pool", i, "name", "region", "models", "engineType", "labels", "capabilities", "engines", "profile", "tls", "metrics", "price", "min", "max")
	p := fleet.Pool{
		ID:           fleet.PoolID(m.name()),
		Region:       m.at("region").text(),
		Models:       texts(m.must("models").someOf(maxListed)),
		EngineType:   m.at("engineType").oneOf(otherEngine, engineTypes...),
		Labels:       m.at("labels").labels(),
		Capabilities: texts(m.at("capabilities").list(maxListed)),
	}
	r.doubtful = r.doubtful || r.doc.faults() > before
	if r.fleet.Pool(p.ID) != nil {
		m.at("name").wrong("give it another name", "there is a pool of this name already")
	}
	if engines := m.must("engines"); engines.isMapping() {
		p.Discovery, p.Awaited = r.discovery(engines, string(p.ID)), true
	} else {
		p.Engines = r.poolEngines(engines, string(p.ID))
	}
	p.Profile, p.AdoptFit = profile(m.must("profile"))
	p.TLS = tls(m.at("tls"))
	p.Metrics = metrics(m.at("metrics"), p.EngineType)
	p.PriceSeconds = m.at("price").seconds(maxLatency)
	p.MinRps, p.MaxRps = poolLimits(m)
	r.fleet.Pools = append(r.fleet.Pools, p)
}

// poolLimits reads the rates between which plans keep a pool.
func poolLimits(m mapping) (least, most float64) {
	if n := m.at("min"); n.present() {
		least = n.rps(0, maxRps)
	}
	n := m.at("max")
	if !n.present() {
		return least, 0
	}
	most = n.rps(minCapacityRps, maxRps)
	if most > 0 && least > most {
		n.wrong("keep max above min", "max is less than min")
	}
	return least, most
}

func (r *reader) poolEngines(n node, pool string) []fleet.EngineID {
	var out []fleet.EngineID
	for _, item := range n.someOf(maxEngines) {
		item.key = ""
		address, ok := item.address("engine", "10.0.0.1:8000")
		if !ok {
			continue
		}
		id := fleet.EngineID(address.String())
		owner, taken := r.engines[id]
		switch {
		case address.Addr().IsUnspecified():
			item.wrong("write the engine's own address", "engine %q cannot be connected to", id)
		case taken:
			item.wrong("list it once", "engine %q is listed already, in pool %q", id, owner)
		case len(r.engines) == maxEngines:
			item.wrong("split the fleet", "there are more than %d engines", maxEngines)
			return out
		default:
			r.engines[id] = pool
			out = append(out, id)
		}
	}
	return out
}

// address reads "ip:port" of one machine. It returns the canonical form, in which
// equal addresses are equal texts.
func (n node) address(what, example string) (netip.AddrPort, bool) {
	s := n.text()
	if s == "" {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil || a.Addr().Zone() != "" || a.Addr().IsMulticast():
		n.wrong("write it as "+example, "%s %q is not ip:port", what, s)
		return a, false
	case a.Port() == 0:
		n.wrong("write a port from 1 to 65535", "%s %q has port 0", what, s)
		return a, false
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), true
}

func tls(n node) *fleet.TLS {
	if !n.present() {
		return nil
	}
	m := n.mapping("sni", "ca", "cert", "key")
	t := &fleet.TLS{
		SNI:      hostName(m.at("sni")),
		CAFile:   filePath(m.at("ca")),
		CertFile: filePath(m.at("cert")),
		KeyFile:  filePath(m.at("key")),
	}
	cert, key := m.at("cert").present(), m.at("key").present()
	if cert != key {
		m.wrong("give both or neither", "a client certificate needs cert and key, and one is missing")
	}
	return t
}

// filePath reads the path of a file on the machines where Envoy runs. A relative
// one would depend on where Envoy was started.
func filePath(n node) string {
	s := n.text()
	if s != "" && !path.IsAbs(s) {
		n.wrong("write it from / on", "%q is not an absolute path", s)
	}
	return s
}

// hostName reads a host without port, in lower case.
func hostName(n node) string {
	s := strings.ToLower(n.text())
	if s != "" && !hostPattern.MatchString(s) {
		n.wrong("write it like api.example.com, without port or wildcard", "%q is not a host name", s)
	}
	return s
}
