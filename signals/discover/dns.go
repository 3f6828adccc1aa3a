package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/fleet"
)

// maxTargets bounds the targets of SRV records that are looked up at once: a StatefulSet
// has one for each of its pods, and all of them have the time of one look.
const maxTargets = 16

// dnsLook asks name servers for a name's addresses, or for its SRV records and the
// addresses of their targets. A name that does not exist is an answer without engines,
// as of a service that has none; whoever cannot tell fails.
func dnsLook(d fleet.Discovery) look {
	return func(ctx context.Context) (named, time.Duration, error) {
		ttl := &shortest{}
		r := resolver(d.Resolver, ttl)
		var engines []fleet.EngineID
		var err error
		if d.Kind == fleet.DiscoverSRV {
			engines, err = lookupSRV(ctx, r, d.Where)
		} else {
			engines, err = lookupHost(ctx, r, d.Where, d.Port)
		}
		if err != nil || len(engines) == 0 {
			return named{}, 0, err // how long there is nothing, its TTL does not say
		}
		return named{engines: engines}, ttl.of(), nil
	}
}

// resolver is one that notes for how long answers are good, and that fails where one
// family's server does, in place of answering with the other's. Go's own is used,
// whatever the machine's is: that of C tells no TTL.
func resolver(server string, ttl *shortest) *net.Resolver {
	var dialer net.Dialer
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if server != "" {
			address = server
		}
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return listen(c, ttl), nil
	}}
}

// lookupHost finds the engines at one port of all of a name's addresses.
func lookupHost(ctx context.Context, r *net.Resolver, host string, port uint16) ([]fleet.EngineID, error) {
	var engines []fleet.EngineID
	for _, family := range families(host) {
		addresses, err := r.LookupNetIP(ctx, family, host)
		if err = notFoundIsNone(err); err != nil {
			return nil, err
		}
		for _, a := range addresses {
			engine, err := fleet.EngineAt(netip.AddrPortFrom(a, port))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", host, err)
			}
			engines = append(engines, engine)
		}
	}
	return sorted(engines), nil
}

// families are what is asked for one by one. Of both at once the resolver does not tell
// that a server refused one of them. Where there are search domains they must be asked
// for together, so that both are of the same name.
func families(host string) []string {
	if strings.HasSuffix(host, ".") {
		return []string{"ip4", "ip6"}
	}
	return []string{"ip"}
}

// lookupSRV finds the engines that SRV records name, whatever their priority and
// weight: how traffic is shared the plan says. A target without an address is one that
// has just left.
func lookupSRV(ctx context.Context, r *net.Resolver, name string) ([]fleet.EngineID, error) {
	_, records, err := r.LookupSRV(ctx, "", "", name)
	if err != nil {
		return nil, notFoundIsNone(err)
	}
	if len(records) > MaxPoolEngines {
		return nil, fmt.Errorf("%w: %d records", errTooMany, len(records))
	}
	found := make([][]fleet.EngineID, len(records))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxTargets)
	for i, record := range records {
		group.Go(func() (err error) {
			found[i], err = lookupHost(ctx, r, record.Target, record.Port)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return sorted(slices.Concat(found...)), nil
}

// notFoundIsNone takes the word of a name server that there is nothing, and that of the
// machine's hosts file that there is nothing of a family.
func notFoundIsNone(err error) error {
	if a := (*net.AddrError)(nil); errors.As(err, &a) {
		return nil
	}
	if d := (*net.DNSError)(nil); errors.As(err, &d) {
		if d.IsNotFound && !d.IsTimeout && !d.IsTemporary {
			return nil
		}
		return fmt.Errorf("look up %s: %s", d.Name, strings.TrimSpace(d.Err))
	}
	return err
}
