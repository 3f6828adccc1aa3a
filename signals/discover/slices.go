package discover

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"weir/fleet"
)

// standing is what a Service says of an endpoint. Where two of its slices differ, the
// greater counts: one of them is late, and who is wrongly left out for a moment harms
// nobody.
type standing int

const (
	serves  standing = iota // it is ready
	leaves                  // it is terminating, and serves yet
	unready                 // it serves nobody
)

// standingOf reads an endpoint's conditions. As the API has it, what they do not say is
// that all is well.
func standingOf(c *discoveryv1.EndpointConditions) standing {
	says := func(condition *bool, otherwise bool) bool {
		if condition == nil {
			return otherwise
		}
		return *condition
	}
	switch terminating := says(c.Terminating, false); {
	case terminating && says(c.Serving, true):
		return leaves
	case terminating, !says(c.Ready, true):
		return unready
	}
	return serves
}

// endpoints are the engines of all slices of a Service. An endpoint may be in several of
// them, and is one engine. Slices without the port that is wanted are left aside, unless
// all are so.
func endpoints(d *fleet.Discovery, all []*discoveryv1.EndpointSlice) (named, error) {
	family, err := familyOf(d, all)
	if err != nil {
		return named{}, err
	}
	known := map[fleet.EngineID]standing{}
	var without error
	for _, s := range all {
		if string(s.AddressType) != family || len(s.Endpoints) == 0 {
			continue
		}
		port, err := portOf(d, s)
		if err != nil {
			without = err
			continue
		}
		if err := note(known, s, port); err != nil {
			return named{}, err
		}
	}
	if len(known) == 0 && without != nil {
		return named{}, without
	}
	return byStanding(known), nil
}

// note takes down the endpoints of one slice. Of an endpoint's addresses any leads to it.
func note(known map[fleet.EngineID]standing, s *discoveryv1.EndpointSlice, port uint16) error {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		ip, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			return fmt.Errorf("slice %s: %q is not an address", s.Name, e.Addresses[0])
		}
		engine, err := fleet.EngineAt(netip.AddrPortFrom(ip, port))
		if err != nil {
			return fmt.Errorf("slice %s: %w", s.Name, err)
		}
		known[engine] = max(known[engine], standingOf(&e.Conditions))
	}
	return nil
}

func byStanding(known map[fleet.EngineID]standing) named {
	var n named
	for engine, s := range known {
		switch s {
		case serves:
			n.engines = append(n.engines, engine)
		case leaves:
			n.leaving = append(n.leaving, engine)
		case unready:
			n.unready = append(n.unready, engine)
		}
	}
	slices.Sort(n.engines)
	slices.Sort(n.leaving)
	slices.Sort(n.unready)
	return n
}

// familyOf chooses the addresses that count: a Service of two families names each pod
// once in each. It has slices of a family whether there are pods or not.
func familyOf(d *fleet.Discovery, all []*discoveryv1.EndpointSlice) (string, error) {
	has := map[string]bool{}
	for _, s := range all {
		has[string(s.AddressType)] = true
	}
	switch {
	case d.Family != "" && len(has) > 0 && !has[d.Family]:
		return "", fmt.Errorf("the Service has no %s addresses: leave addressType out, or change it", d.Family)
	case d.Family != "":
		return d.Family, nil
	case has[fleet.IPv4], len(has) == 0:
		return fleet.IPv4, nil
	case has[fleet.IPv6]:
		return fleet.IPv6, nil
	}
	return "", errors.New("the Service has host names and no addresses: name it by dns")
}

// portOf is the port that the endpoints of a slice listen on, of that which is wanted.
func portOf(d *fleet.Discovery, s *discoveryv1.EndpointSlice) (uint16, error) {
	var usable, fit []discoveryv1.EndpointPort
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port <= 0 || *p.Port > 65535 || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			continue
		}
		usable = append(usable, p)
		if wanted(d, &p) {
			fit = append(fit, p)
		}
	}
	// Several names may be of one number.
	if len(fit) > 0 && !slices.ContainsFunc(fit, func(p discoveryv1.EndpointPort) bool { return *p.Port != *fit[0].Port }) {
		return uint16(*fit[0].Port), nil
	}
	return 0, fmt.Errorf("the Service's endpoints have %s: set port to one of these", list(usable))
}

// wanted says whether it is the port that the fleet file asks for; without a word, any is.
func wanted(d *fleet.Discovery, p *discoveryv1.EndpointPort) bool {
	switch {
	case d.Port != 0:
		return *p.Port == int32(d.Port)
	case d.PortName != "":
		return p.Name != nil && *p.Name == d.PortName
	}
	return true
}

// list names ports.
func list(ports []discoveryv1.EndpointPort) string {
	if len(ports) == 0 {
		return "no TCP port"
	}
	names := make([]string, 0, len(ports))
	for _, p := range ports {
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		names = append(names, cmp.Or(name, "(no name)")+" "+fmt.Sprint(*p.Port))
	}
	slices.Sort(names)
	return "the ports " + strings.Join(names, ", ")
}
