package fleet

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// DiscoveryKind says who knows a pool's engines.
type DiscoveryKind string

// Who may know them, as the fleet file writes it.
const (
	DiscoverFile DiscoveryKind = "file" // a file that lists them
	DiscoverDNS  DiscoveryKind = "dns"  // a name's addresses, each with the same port
	DiscoverSRV  DiscoveryKind = "srv"  // a name's SRV records

	DiscoverKubernetes DiscoveryKind = "kubernetes" // the EndpointSlices of a Service
)

// Families of addresses, as EndpointSlices and the fleet file write them.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

// Discovery says where a pool's engines are found that do not stand in the fleet file.
// Equal values are one source.
type Discovery struct {
	Kind     DiscoveryKind
	Where    string        // path, name, or "namespace/service"
	Port     uint16        // dns: of every engine; kubernetes: of the pods, 0: PortName has it
	PortName string        // kubernetes: of the Service's port; empty, and no Port: its only one
	Family   string        // kubernetes: IPv4 or IPv6; empty: IPv4, of a Service that has it
	Resolver string        // dns, srv: "ip:port" of the name server; empty: the system's
	Every    time.Duration // between two looks, where nobody tells when the answer changes
	AtMost   time.Duration // dns, srv: no answer is good for longer, whatever its TTL; 0: than five minutes
	Drain    time.Duration // an engine that leaves has so long for the requests that it has
	Doubt    time.Duration // an answer without engines must last so long to be believed
}

// String names the source to people.
func (d *Discovery) String() string {
	switch {
	case d == nil:
		return "fleet file"
	case d.Kind == DiscoverDNS:
		return fmt.Sprintf("dns %s:%d", d.Where, d.Port)
	case d.Kind == DiscoverKubernetes && d.Port != 0:
		return fmt.Sprintf("kubernetes %s:%d", d.Where, d.Port)
	case d.Kind == DiscoverKubernetes && d.PortName != "":
		return fmt.Sprintf("kubernetes %s:%s", d.Where, d.PortName)
	}
	return string(d.Kind) + " " + d.Where
}

// SourceState is what is known of where a pool's engines come from.
type SourceState struct {
	Heard   time.Time // when the source last answered; zero: this process has not heard it
	Engines int       // that it names and the pool has; those that leave are not among them
	Leaving int       // that it named before, and that have requests to end
	Refused int       // that it names and the pool does not get
	Problem string    // why the engines are not as the source has them, or not sure to be; empty: they are
}

// ParseEngine reads "ip:port" of one machine, and writes it in the form in which equal
// addresses are equal texts.
func ParseEngine(s string) (EngineID, error) {
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is not ip:port", s)
	default:
		return EngineAt(a)
	}
}

// EngineAt is the name of the engine at an address that can be one machine's.
func EngineAt(a netip.AddrPort) (EngineID, error) {
	ip := a.Addr().Unmap()
	switch {
	case !ip.IsValid() || ip.Zone() != "" || ip.IsMulticast():
		return "", fmt.Errorf("%s is not the address of a machine", a)
	case ip.IsUnspecified():
		return "", fmt.Errorf("%s cannot be connected to", a)
	case a.Port() == 0:
		return "", errors.New(a.String() + " has port 0")
	}
	return EngineID(netip.AddrPortFrom(ip, a.Port()).String()), nil
}
