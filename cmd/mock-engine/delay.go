package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// delays are how far away clients are: round trips by address, the longest prefix
// first.
type delays []delay

type delay struct {
	source    netip.Prefix
	roundTrip time.Duration
}

// add reads the value of one flag.
func (d *delays) add(list string) error {
	for _, item := range splitList(list) {
		source, value, _ := strings.Cut(item, "=")
		prefix, err := readSource(source)
		if err != nil {
			return fmt.Errorf("%q: want SOURCE=TIME with an IP address or CIDR", item)
		}
		roundTrip, err := time.ParseDuration(value)
		if err != nil || roundTrip < 0 {
			return fmt.Errorf("%q: want SOURCE=TIME with a time such as 20ms", item)
		}
		*d = append(*d, delay{prefix, roundTrip})
	}
	slices.SortStableFunc(*d, func(a, b delay) int { return cmp.Compare(b.source.Bits(), a.source.Bits()) })
	return nil
}

func readSource(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	address, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return address.Prefix(address.BitLen())
}

// to is the round trip to a client.
func (d delays) to(source netip.Addr) time.Duration {
	for _, known := range d {
		if known.source.Contains(source) {
			return known.roundTrip
		}
	}
	return 0
}

// distant lets every request come as late as its client is far away. The whole
// round trip is spent before the request, as its answer may have many parts.
func (e *engine) distant(near http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if roundTrip := e.delays.to(sourceOf(r)); roundTrip > 0 {
			if sleepUntil(r.Context(), time.Now().Add(roundTrip)) != nil {
				panic(http.ErrAbortHandler)
			}
		}
		near.ServeHTTP(w, r)
	})
}

// sourceOf is the client's address as the connection shows it.
func sourceOf(r *http.Request) netip.Addr {
	source, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address is in no prefix
	return source.Addr().Unmap()
}
