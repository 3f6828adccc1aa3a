package config

import (
	"regexp"
	"strconv"
	"strings"

	"weir/fleet"
)

// labelPattern is what Kubernetes calls Services, namespaces and ports.
var labelPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// service reads a Service of Kubernetes whose endpoints are a pool's engines.
func (n node) service(d *fleet.Discovery) {
	m := n.mapping("service", "namespace", "port", "addressType")
	name, namespace := m.must("service").label("Service"), m.must("namespace").label("namespace")
	if name != "" && namespace != "" {
		d.Where = namespace + "/" + name
	}
	d.PortName, d.Port = m.at("port").servicePort()
	d.Family = m.at("addressType").oneOf("", fleet.IPv4, fleet.IPv6)
}

// label reads a name that Kubernetes can have given to something.
func (n node) label(what string) string {
	s := n.text()
	if s != "" && !labelPattern.MatchString(s) {
		n.wrong("use up to 63 small letters, digits and '-', as Kubernetes does", "%q cannot be the name of a %s", s, what)
		return ""
	}
	return s
}

// servicePort reads the name of a Service's port, or the number that its pods listen on.
func (n node) servicePort() (name string, number uint16) {
	s := scalar(n, "", parseText)
	if s == "" {
		return "", 0
	}
	port, err := strconv.ParseUint(s, 10, 16)
	switch {
	case err == nil && port > 0:
		return "", uint16(port)
	case err == nil, !labelPattern.MatchString(s), allDigits(s):
		n.wrong("write the name of the Service's port, or the number that the pods listen on", "%q is neither a port's name nor its number", s)
		return "", 0
	}
	return s, 0
}

func allDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}
