package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/fleet"
)

func withEngines(engines string) string {
	return strings.Replace(minimal, `["127.0.0.1:11001"]`, engines, 1)
}

func TestDiscovery(t *testing.T) {
	tests := map[string]fleet.Discovery{
		"{file: /etc/weir/p.engines}": {
			Kind: fleet.DiscoverFile, Where: "/etc/weir/p.engines", Every: 500 * time.Millisecond, Drain: 2 * time.Minute, Doubt: time.Minute,
		},
		"{file: /p, every: 200ms, drain: 0s, doubt: 1h}": {
			Kind: fleet.DiscoverFile, Where: "/p", Every: 200 * time.Millisecond, Doubt: time.Hour,
		},
		`{dns: "VLLM.test:8000", resolver: "10.0.0.10:53"}`: {
			Kind: fleet.DiscoverDNS, Where: "vllm.test", Port: 8000, Resolver: "10.0.0.10:53", Every: 10 * time.Second, Drain: 2 * time.Minute, Doubt: time.Minute,
		},
		"{dns: vllm.test.:8000, every: 1m}": {
			Kind: fleet.DiscoverDNS, Where: "vllm.test.", Port: 8000, Every: time.Minute, AtMost: time.Minute, Drain: 2 * time.Minute, Doubt: time.Minute,
		},
		"{srv: _http._tcp.vllm.test}": {
			Kind: fleet.DiscoverSRV, Where: "_http._tcp.vllm.test", Every: 10 * time.Second, Drain: 2 * time.Minute, Doubt: time.Minute,
		},
		"{kubernetes: {service: vllm-llama, namespace: inference, port: http}}": {
			Kind: fleet.DiscoverKubernetes, Where: "inference/vllm-llama", PortName: "http", Every: 10 * time.Second, Drain: 2 * time.Minute, Doubt: time.Minute,
		},
		"{kubernetes: {service: vllm, namespace: x, port: 8000, addressType: IPv6}, drain: 10m, doubt: 2m}": {
			Kind: fleet.DiscoverKubernetes, Where: "x/vllm", Port: 8000, Family: "IPv6", Every: 10 * time.Second, Drain: 10 * time.Minute, Doubt: 2 * time.Minute,
		},
		"{kubernetes: {service: 7b, namespace: x}}": {
			Kind: fleet.DiscoverKubernetes, Where: "x/7b", Every: 10 * time.Second, Drain: 2 * time.Minute, Doubt: time.Minute,
		},
	}
	for engines, want := range tests {
		t.Run(engines, func(t *testing.T) {
			f, err := Parse("fleet.yaml", []byte(withEngines(engines)))
			if err != nil {
				t.Fatal(err)
			}
			checkPromises(t, f)
			p := f.Pools[0]
			if diff := cmp.Diff(&want, p.Discovery); diff != "" || !p.Awaited {
				t.Errorf("awaited %v, discovery (-want +got):\n%s", p.Awaited, diff)
			}
		})
	}
}

func TestDiscoveryRefused(t *testing.T) {
	tests := map[string]string{
		"{}":                                "it names no source of engines",
		"{drain: 1m}":                       "it names no source of engines",
		"{file: p.engines}":                 `engines.file: "p.engines" is not an absolute path`,
		"{files: /p}":                       `unknown key "files"`,
		"{file: /p, every: 1ms}":            "engines.every: 1ms is out of range; keep it between 100ms and 1h",
		"{file: /p, drain: 2h}":             "engines.drain: 2h is out of range",
		"{file: /p, doubt: 25h}":            "engines.doubt: 25h is out of range",
		"{file: /p, every: 5}":              "engines.every: 5 has no unit",
		"{file: }":                          "engines.file: no value",
		"{file: [/p]}":                      "engines.file: a list where a single value belongs",
		"{file: /p, srv: _a._tcp.b}":        "engines.srv: a pool has one source, and both file and srv are given; keep one of them",
		"{file: /p, resolver: 10.0.0.1:53}": "engines.resolver: a source of kind file has no resolver",
		"{dns: vllm.test}":                  `engines.dns: "vllm.test" is not a host name and a port; write it like vllm.example.com:8000`,
		"{dns: vllm.test:0}":                `"vllm.test:0" is not a host name and a port`,
		"{dns: vllm.test:65536}":            `is not a host name and a port`,
		"{dns: vl lm:80}":                   `is not a host name and a port`,
		"{dns: 10.0.0.1:80}":                `"10.0.0.1:80" is an address, not a name; list it as an engine`,
		"{dns: a:80, resolver: ns.test}":    `resolver "ns.test" is not ip:port`,
		"{srv: vllm.test}":                  `"vllm.test" is not a name of SRV records`,
		"{kubernetes: inference/vllm}":      "engines.kubernetes: a text where a mapping belongs",
		"{kubernetes: {namespace: x}}":      "engines.kubernetes: service is missing; add it",
		"{kubernetes: {service: vllm}}":     "engines.kubernetes: namespace is missing; add it",

		"{kubernetes: {service: vllm.x, namespace: y}}":                 `engines.kubernetes.service: "vllm.x" cannot be the name of a Service; use up to 63`,
		"{kubernetes: {service: vllm, namespace: -y}}":                  `engines.kubernetes.namespace: "-y" cannot be the name of a namespace`,
		"{kubernetes: {service: vllm, namespace: y, port: 0}}":          `engines.kubernetes.port: "0" is neither a port's name nor its number`,
		"{kubernetes: {service: vllm, namespace: y, port: 65536}}":      `"65536" is neither a port's name nor its number`,
		"{kubernetes: {service: vllm, namespace: y, port: HTTP}}":       `"HTTP" is neither a port's name nor its number; write the name of the Service's port`,
		"{kubernetes: {service: vllm, namespace: y, ports: http}}":      `unknown key "ports"`,
		"{kubernetes: {service: vllm, namespace: y, addressType: ip4}}": `engines.kubernetes.addressType: "ip4" is not known; write IPv4 or IPv6`,
		"{kubernetes: {service: vllm, namespace: y}, every: 1s}":        "engines.every: a source of kind kubernetes has no every; remove it",
		"{kubernetes: {service: vllm, namespace: y}, dns: a:80}":        "both dns and kubernetes are given",

		"/etc/weir/p.engines": "engines: a text where a list belongs",
	}
	for engines, want := range tests {
		t.Run(engines, func(t *testing.T) {
			_, err := Parse("fleet.yaml", []byte(withEngines(engines)))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `pool "P"`) {
				t.Errorf("got %v\nwant %s", err, want)
			}
		})
	}
}

// Two pools of one source would have each engine twice.
func TestASourceIsOfOnePool(t *testing.T) {
	text := withEngines("{file: /p}")
	text = strings.Replace(text, "pools:\n", "pools:\n  - {name: Q, models: [m], engines: {file: /p, drain: 1s}, profile: {capacity: 1 rps, ttft: 1s}}\n", 1)
	_, err := Parse("fleet.yaml", []byte(text))
	if want := `pool "P": engines.file: pool "Q" has this source already`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
