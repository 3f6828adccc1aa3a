package envoy

import (
	"errors"
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"weir/fleet"
)

// A cluster's priorities. Hashed traffic stays in the first while any engine of
// it is healthy; a pick or an alternative may reach the second.
const (
	prioritySharing  = 0
	priorityEligible = 1
)

// overprovisioning keeps traffic in the first priority down to one healthy engine
// in ten; Envoy's default of 140 spills 31 % with one of two sick.
const overprovisioning = 1000

// Priority is that of a pool's engines in their class's cluster. The first is never
// empty: where no pool has a share, all stand in it.
func Priority(c *fleet.ViewClass, p *fleet.ViewPool) int {
	if p.Weight == 0 && slices.ContainsFunc(c.Pools, func(p fleet.ViewPool) bool { return p.Weight > 0 }) {
		return priorityEligible
	}
	return prioritySharing
}

// encodeEndpoints writes the engines of a class, one locality a pool.
func encodeEndpoints(c *fleet.ViewClass) (*endpointv3.ClusterLoadAssignment, error) {
	out := &endpointv3.ClusterLoadAssignment{
		ClusterName: string(c.ID),
		Policy:      &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: u32(overprovisioning)},
	}
	for i := range c.Pools {
		locality, err := encodePool(c, &c.Pools[i])
		if err != nil {
			return nil, fmt.Errorf("pool %q: %w", c.Pools[i].ID, err)
		}
		out.Endpoints = append(out.Endpoints, locality)
	}
	return out, nil
}

func encodePool(c *fleet.ViewClass, p *fleet.ViewPool) (*endpointv3.LocalityLbEndpoints, error) {
	if len(p.Engines) == 0 {
		return nil, errors.New("has no engine; leave the pool out")
	}
	out := &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Region: p.Region, Zone: string(p.ID)},
		Priority: uint32(Priority(c, p)),
	}
	if p.Weight > 0 {
		out.LoadBalancingWeight = u32(p.Weight)
	}
	for _, e := range p.Engines {
		endpoint, err := encodeEngine(p, e)
		if err != nil {
			return nil, err
		}
		out.LbEndpoints = append(out.LbEndpoints, endpoint)
	}
	return out, nil
}

func encodeEngine(p *fleet.ViewPool, e fleet.ViewEngine) (*endpointv3.LbEndpoint, error) {
	address, err := socketAddress(string(e.ID))
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address, Hostname: nameOf(p)}},
		HealthStatus:        healthOf(e.Readiness),
		LoadBalancingWeight: u32(p.EngineWeight()),
		Metadata:            poolMetadata(p.ID),
	}, nil
}

// nameOf is the name by which a pool's engines are asked, in the handshake and in the
// request: gateways refuse requests for another name than that of the handshake. Empty:
// by the name that the client called.
func nameOf(p *fleet.ViewPool) string {
	if p.TLS == nil {
		return ""
	}
	return p.TLS.SNI
}

func healthOf(r fleet.Readiness) corev3.HealthStatus {
	switch r {
	case fleet.Ready:
		return corev3.HealthStatus_HEALTHY
	case fleet.Unready:
		return corev3.HealthStatus_UNHEALTHY
	case fleet.Draining:
		return corev3.HealthStatus_DRAINING
	default:
		return corev3.HealthStatus_UNKNOWN // Envoy sends traffic to it
	}
}

func readinessOf(h corev3.HealthStatus) fleet.Readiness {
	switch h {
	case corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DEGRADED:
		return fleet.Ready
	case corev3.HealthStatus_UNKNOWN:
		return fleet.Unknown
	case corev3.HealthStatus_DRAINING:
		return fleet.Draining
	default:
		return fleet.Unready
	}
}
