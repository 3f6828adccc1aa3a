package stage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weir/fleet"
)

// source is the address from which the Envoys of a front-end speak to engines.
func (s *Stage) source(id fleet.FrontEndID) string {
	i := slices.IndexFunc(s.Fleet.FrontEnds, func(fe fleet.FrontEnd) bool { return fe.ID == id })
	return fmt.Sprintf("127.0.1.%d", i+1)
}

// delays lists the round trips to a pool as the mock engine's flag wants them.
func (s *Stage) delays(p fleet.PoolID) string {
	var list []string
	for _, fe := range s.Fleet.FrontEnds {
		seconds := s.Fleet.Network.RoundTripSeconds[fleet.Link{FrontEnd: fe.ID, Pool: p}]
		list = append(list, s.source(fe.ID)+"="+duration(seconds))
	}
	return strings.Join(list, ",")
}

// bindTo has an Envoy speak from an address.
func bindTo(bootstrap []byte, source string) ([]byte, error) {
	var b map[string]any
	if err := json.Unmarshal(bootstrap, &b); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	manager, _ := b["clusterManager"].(map[string]any)
	if manager == nil {
		manager = map[string]any{}
	}
	manager["upstreamBindConfig"] = map[string]any{"sourceAddress": map[string]any{"address": source, "portValue": 0}}
	b["clusterManager"] = manager
	return json.MarshalIndent(b, "", "  ")
}
