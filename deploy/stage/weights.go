package stage

import (
	"context"
	"encoding/json"
	"fmt"
)

// endpoints is the part of Envoy's dump of its endpoints that weighs them.
type endpoints struct {
	Configs []struct {
		Endpoints struct {
			Cluster    string `json:"cluster_name"`
			Localities []struct {
				Locality struct {
					Zone string `json:"zone"`
				} `json:"locality"`
				Priority int `json:"priority"`
				Weight   int `json:"load_balancing_weight"`
				Engines  []struct {
					Endpoint host `json:"endpoint"`
					Weight   int  `json:"load_balancing_weight"`
				} `json:"lb_endpoints"`
			} `json:"endpoints"`
		} `json:"endpoint_config"`
	} `json:"configs"`
}

// Weights are those by which an Envoy spreads requests now, by its own account: of
// each pool of a class, "CLASS/PRIORITY/POOL", and of its engines, with "/ENGINE"
// behind.
func (s *Stage) Weights(ctx context.Context, envoy string) (map[string]int, error) {
	text, err := get(ctx, "http://"+s.nodes[envoy].admin+"/config_dump?include_eds&resource=dynamic_endpoint_configs")
	if err != nil {
		return nil, err
	}
	var dump endpoints
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		return nil, fmt.Errorf("endpoints of envoy %q: %w", envoy, err)
	}
	weights := map[string]int{}
	for _, c := range dump.Configs {
		for _, l := range c.Endpoints.Localities {
			pool := fmt.Sprintf("%s/%d/%s", c.Endpoints.Cluster, l.Priority, l.Locality.Zone)
			weights[pool] = l.Weight
			for _, e := range l.Engines {
				weights[pool+"/"+string(e.Endpoint.engine())] = e.Weight
			}
		}
	}
	return weights, nil
}
