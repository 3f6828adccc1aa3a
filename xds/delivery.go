package xds

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

const (
	maxPending = 64   // responses of one type that may be unanswered on one stream
	maxRefusal = 1024 // bytes kept of a client's reason for a NACK
)

// delivery follows one resource type on one stream: what was sent, and what of it
// the client took.
type delivery struct {
	whole                 bool              // the client takes all that it has, or refuses it
	sent, acked           map[string]string // version by resource
	refused               map[string]string // version by resource that was refused by itself
	again                 []string          // resources refused in company: to be sent once more
	pending               []push            // not answered yet, oldest first
	sentVersion           string
	ackedVersion, ackedBy string // version and nonce of the last ACK
	refusal               string // of the last NACK, until everything is taken
	nacks                 uint64
	since                 time.Time // when the client fell behind
}

// push is one response. A change to the empty version is a removal.
type push struct {
	nonce, version string
	changes        map[string]string
	repeats        bool // all of it was sent before
}

// newDelivery starts with what the client says it has from an earlier stream.
func newDelivery(initial map[string]string, whole bool) *delivery {
	d := &delivery{whole: whole, sent: map[string]string{}, acked: map[string]string{}, refused: map[string]string{}}
	maps.Copy(d.sent, initial)
	maps.Copy(d.acked, initial)
	return d
}

// pushed notes a response; it says whether an older one, never answered, was
// forgotten for it.
func (d *delivery) pushed(resp *discoveryv3.DeltaDiscoveryResponse, now time.Time) (forgotten bool) {
	if len(d.pending) == 0 && d.refusal == "" {
		d.since = now
	}
	changes := make(map[string]string, len(resp.GetResources()))
	for _, name := range resp.GetRemovedResources() {
		changes[name] = ""
	}
	for _, r := range resp.GetResources() {
		changes[r.GetName()] = r.GetVersion()
	}
	repeats := len(changes) > 0
	for name, version := range changes {
		repeats = repeats && d.sent[name] == version
		delete(d.refused, name)
	}
	apply(d.sent, changes)
	d.sentVersion = resp.GetSystemVersionInfo()
	d.pending = append(d.pending, push{resp.GetNonce(), d.sentVersion, changes, repeats})
	if len(d.pending) > maxPending {
		d.pending = d.pending[1:]
		return true
	}
	return false
}

// answered takes in a request. It returns what of that sent on this stream the
// request refuses, if it does, and the names of what is to be sent once more.
func (d *delivery) answered(req *discoveryv3.DeltaDiscoveryRequest) (nack *push, again []string) {
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(d.sent, name)
		delete(d.acked, name)
	}
	i := slices.IndexFunc(d.pending, func(p push) bool { return p.nonce == req.GetResponseNonce() })
	if i < 0 {
		return nil, nil
	}
	p := d.pending[i]
	d.pending = slices.Delete(d.pending, i, i+1)
	if detail := req.GetErrorDetail(); detail != nil {
		d.refuse(&p, cmp.Or(shorten(detail.GetMessage(), maxRefusal), "no reason given"))
		return &p, d.retry(false)
	}
	apply(d.acked, p.changes)
	d.ackedVersion, d.ackedBy = p.version, p.nonce
	if d.refusal != "" && d.behind() == 0 {
		d.refusal = ""
	}
	return nil, d.retry(true)
}

// refuse notes a NACK. What was sent in company may be sound: that shows when it
// is sent again. A removal cannot be refused.
func (d *delivery) refuse(p *push, reason string) {
	d.refusal = reason
	d.nacks++
	for _, name := range slices.Sorted(maps.Keys(p.changes)) {
		switch version := p.changes[name]; {
		case version == "":
			delete(d.acked, name)
		case !d.whole && len(p.changes) == 1:
			d.refused[name] = version
		case !slices.Contains(d.again, name):
			d.again = append(d.again, name)
		}
	}
}

// retry takes from the list of what is to be sent again. An Envoy takes each
// resource or refuses it, so it gets them one by one. Who refuses the whole gets all
// of them, once it has taken something.
func (d *delivery) retry(taken bool) []string {
	d.again = slices.DeleteFunc(d.again, func(name string) bool {
		version, wanted := d.sent[name]
		return !wanted || d.settled(name, version) || d.underWay(name, version)
	})
	n := min(1, len(d.again))
	if d.whole {
		n = 0
		if taken {
			n = len(d.again)
		}
	}
	names := slices.Clone(d.again[:n])
	d.again = slices.Delete(d.again, 0, n)
	return names
}

func (d *delivery) underWay(name, version string) bool {
	return slices.ContainsFunc(d.pending, func(p push) bool { return p.changes[name] == version })
}

// settled says whether the client took or refused this version, and was sent no
// other since.
func (d *delivery) settled(name, version string) bool {
	return d.sent[name] == version && (d.acked[name] == version || d.refused[name] == version)
}

// refuses says whether the client has refused one of these versions.
func (d *delivery) refuses(versions map[string]string) bool {
	for name, version := range versions {
		if d.sent[name] == version && (d.refused[name] == version || slices.Contains(d.again, name)) {
			return true
		}
	}
	return false
}

func apply(versions, changes map[string]string) {
	for name, version := range changes {
		if version == "" {
			delete(versions, name)
		} else {
			versions[name] = version
		}
	}
}

// behind counts the resources that the client was sent and has not taken.
func (d *delivery) behind() int {
	n := 0
	for name, version := range d.sent {
		if d.acked[name] != version {
			n++
		}
	}
	for name := range d.acked {
		if _, ok := d.sent[name]; !ok {
			n++
		}
	}
	return n
}

// has says whether the client took all of these versions, and was sent no other
// since.
func (d *delivery) has(versions map[string]string) bool {
	for name, version := range versions {
		if d.acked[name] != version || d.sent[name] != version {
			return false
		}
	}
	return true
}

// shorten keeps both ends of a reason: Envoy quotes the whole resource first, and
// says at the end what is wrong with it.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n/4]+" … "+s[len(s)-n*3/4:], "")
}
