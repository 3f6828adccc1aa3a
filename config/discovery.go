package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"weir/fleet"
)

// What holds of a source where the file says nothing.
const (
	// A look at a file costs nothing, and an engine that left should get nothing a probe
	// interval later.
	defaultFileEvery = 500 * time.Millisecond
	// Name servers ask to be asked no oftener than their TTL, where they are known.
	defaultDNSEvery = 10 * time.Second
	// Kubernetes tells when something changes; so often what holds is said again.
	kubernetesEvery = 10 * time.Second
	// Most answers end in it; what lasts longer goes on at the engine, unseen.
	defaultDrain = 2 * time.Minute
	// A list that is empty for a moment is nearly always a mistake, and takes a pool
	// down.
	defaultDoubt = time.Minute

	minEvery, maxEvery = 100 * time.Millisecond, time.Hour
	maxDrain, maxDoubt = time.Hour, 24 * time.Hour
)

// discoverers are the kinds of source that a pool may have.
var discoverers = []string{string(fleet.DiscoverFile), string(fleet.DiscoverDNS), string(fleet.DiscoverSRV), string(fleet.DiscoverKubernetes)}

// ownKeys are those that only some kinds of source have.
var ownKeys = map[string][]fleet.DiscoveryKind{
	"every":    {fleet.DiscoverFile, fleet.DiscoverDNS, fleet.DiscoverSRV},
	"resolver": {fleet.DiscoverDNS, fleet.DiscoverSRV},
}

func (n node) isMapping() bool {
	_, is := n.tree.(ast.MapNode)
	return is
}

// discovery reads where a pool's engines are found.
func (r *reader) discovery(n node, pool string) *fleet.Discovery {
	m := n.mapping(append(slices.Clone(discoverers), "every", "resolver", "drain", "doubt")...)
	d := &fleet.Discovery{
		Drain: m.at("drain").duration(defaultDrain, 0, maxDrain),
		Doubt: m.at("doubt").duration(defaultDoubt, 0, maxDoubt),
	}
	at := m.source(d)
	if d.Kind == "" {
		return d
	}
	m.foreign(d.Kind)
	every := m.at("every")
	d.Every = every.duration(everyOf(d.Kind), minEvery, maxEvery)
	if every.present() && d.Kind != fleet.DiscoverFile {
		d.AtMost = d.Every
	}
	if a, ok := m.at("resolver").optionalAddress(); ok {
		d.Resolver = a.String()
	}
	r.unshared(at, *d, pool)
	return d
}

// source reads which source it is and returns where that stands.
func (m mapping) source(d *fleet.Discovery) (at node) {
	for _, kind := range discoverers {
		n := m.at(kind)
		switch {
		case !n.present():
			continue
		case d.Kind != "":
			n.wrong("keep one of them", "a pool has one source, and both %s and %s are given", d.Kind, kind)
			continue
		}
		d.Kind, at = fleet.DiscoveryKind(kind), n
		n.whereabouts(d)
	}
	if d.Kind == "" {
		m.wrong("add "+strings.Join(discoverers, ", ")+", or list the engines", "it names no source of engines")
	}
	return at
}

// foreign reports keys that a kind of source does not have.
func (m mapping) foreign(kind fleet.DiscoveryKind) {
	for _, key := range sortedKeys(ownKeys) {
		if n := m.at(key); n.present() && !slices.Contains(ownKeys[key], kind) {
			n.wrong("remove it", "a source of kind %s has no %s", kind, key)
		}
	}
}

func everyOf(kind fleet.DiscoveryKind) time.Duration {
	switch kind {
	case fleet.DiscoverFile:
		return defaultFileEvery
	case fleet.DiscoverKubernetes:
		return kubernetesEvery
	}
	return defaultDNSEvery
}

// whereabouts reads where a source of a kind is.
func (n node) whereabouts(d *fleet.Discovery) {
	switch d.Kind {
	case fleet.DiscoverFile:
		d.Where = filePath(n)
	case fleet.DiscoverDNS:
		d.Where, d.Port = n.hostPort()
	case fleet.DiscoverSRV:
		d.Where = strings.ToLower(n.text())
		if d.Where != "" && !srvPattern.MatchString(d.Where) {
			n.wrong("write it like _http._tcp.vllm.example.com", "%q is not a name of SRV records", d.Where)
		}
	case fleet.DiscoverKubernetes:
		n.service(d)
	}
}

// hostPort reads a host name and the port of what is behind it.
func (n node) hostPort() (host string, port uint16) {
	s := strings.ToLower(n.text())
	if s == "" {
		return "", 0
	}
	host, number, _ := strings.Cut(s, ":")
	p, err := strconv.ParseUint(number, 10, 16)
	switch {
	case err != nil || p == 0 || !dnsPattern.MatchString(host):
		n.wrong("write it like vllm.example.com:8000", "%q is not a host name and a port", s)
	case isIP(host):
		n.wrong("list it as an engine", "%q is an address, not a name", s)
	}
	return host, uint16(p)
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// optionalAddress reads an address that may be left out.
func (n node) optionalAddress() (netip.AddrPort, bool) {
	if !n.present() {
		return netip.AddrPort{}, false
	}
	return n.address("resolver", "10.0.0.10:53")
}

// unshared holds that no two pools have one source: each engine would be in both.
func (r *reader) unshared(at node, d fleet.Discovery, pool string) {
	if d.Where == "" {
		return
	}
	d.Every, d.AtMost, d.Drain, d.Doubt = 0, 0, 0, 0
	if owner, taken := r.sources[d]; taken {
		at.wrong("give each pool a source of its own", "pool %q has this source already", owner)
		return
	}
	r.sources[d] = pool
}
