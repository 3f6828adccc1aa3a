package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"

	"weir/fleet"
)

// clusters is the part of Envoy's /clusters?format=json that counts requests.
type clusters struct {
	Statuses []struct {
		Hosts []host `json:"host_statuses"`
	} `json:"cluster_statuses"`
}

type host struct {
	Address struct {
		Socket struct {
			Address string `json:"address"`
			Port    int    `json:"port_value"`
		} `json:"socket_address"`
	} `json:"address"`
	Stats []struct {
		Name  string `json:"name"`
		Value string `json:"value"` // of integers; absent: 0
	} `json:"stats"`
}

// Sent is how many requests an Envoy has sent to each engine, by its own count and
// with its retries: the truth about engines that keep no journal. An engine that
// leaves the fleet file takes its count with it.
func (s *Stage) Sent(ctx context.Context, envoy string) (map[fleet.EngineID]int, error) {
	text, err := get(ctx, "http://"+s.nodes[envoy].admin+"/clusters?format=json")
	if err != nil {
		return nil, err
	}
	var all clusters
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("clusters of envoy %q: %w", envoy, err)
	}
	sent := map[fleet.EngineID]int{}
	for _, cluster := range all.Statuses {
		for _, h := range cluster.Hosts {
			if e := h.engine(); s.hasEngine(e) {
				sent[e] += h.requests()
			}
		}
	}
	return sent, nil
}

func (s *Stage) hasEngine(e fleet.EngineID) bool {
	return slices.ContainsFunc(s.Fleet.Pools, func(p fleet.Pool) bool { return slices.Contains(p.Engines, e) })
}

func (h *host) engine() fleet.EngineID {
	a := h.Address.Socket
	return fleet.EngineID(net.JoinHostPort(a.Address, strconv.Itoa(a.Port)))
}

func (h *host) requests() int {
	for _, stat := range h.Stats {
		if stat.Name == "rq_total" {
			n, _ := strconv.Atoi(stat.Value) // "" is Envoy's 0
			return n
		}
	}
	return 0
}
