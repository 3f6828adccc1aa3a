package envoy_test

import (
	"fmt"
	"testing"

	"weir/config"
	"weir/envoy"
)

// fleetFile is a fleet with one class whose name, rule's header and source of the
// conversation's name are filled in.
const fleetFile = `
frontEnds: [{name: A, listen: "127.0.0.1:10001"}]
pools:
  - {name: P, models: [m], engines: ["127.0.0.1:11001"], profile: {capacity: 10 rps, ttft: 200ms}}
classes:
  - name: %s
    match: [{model: m, headers: {%s: x}}]
    affinity: ["header:%s"]
network: {default: 5ms}
`

func load(class, ruleHeader, affinityHeader string) error {
	_, err := config.Parse("fleet.yaml", fmt.Appendf(nil, fleetFile, class, ruleHeader, affinityHeader))
	return err
}

// A fleet file may not lean on what this room keeps for itself: config cannot ask
// for these names, and states them once more.
func TestFleetFilesKeepOffOurNames(t *testing.T) {
	if err := load("chat", "x-tier", "x-session-id"); err != nil {
		t.Fatalf("a fleet file that leans on nothing: %v", err)
	}
	for _, class := range []string{envoy.XDSCluster, envoy.ExtProc} {
		if load(class, "x-tier", "x-session-id") == nil {
			t.Errorf("a class may be called %s, as a cluster of the bootstrap is", class)
		}
	}
	for _, header := range append(envoy.DeniedHeaders(), envoy.HeaderPrefix+"any", envoy.HeaderGateway) {
		if load("chat", header, "x-session-id") == nil {
			t.Errorf("a rule may ask for the header %s, which weir-extproc never sees", header)
		}
		if load("chat", "x-tier", header) == nil {
			t.Errorf("a conversation may be named by the header %s, which weir-extproc never sees", header)
		}
	}
}
