package discover

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"weir/fleet"
)

// nameServer answers on 127.0.0.1, over UDP and TCP.
type nameServer struct {
	t       *testing.T
	address string
	asked   atomic.Int64
	ends    chan struct{}

	mu      sync.Mutex // guards what follows
	code    map[dnsmessage.Type]dnsmessage.RCode
	silent  bool
	records map[string][]dnsmessage.Resource // by name and type
	crowd   *crowd                           // nil: nobody waits for others
}

// crowd has queries for addresses wait until so many names are asked for at once.
type crowd struct {
	want  int
	names map[string]bool // that wait, and those that have
	here  chan struct{}   // closed when all are
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{t: t, records: map[string][]dnsmessage.Resource{}, ends: make(chan struct{})}
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	s.address = tcp.Addr().String()
	udp, err := net.ListenPacket("udp4", s.address)
	check(t, err)
	var running sync.WaitGroup
	running.Go(func() { s.datagrams(udp, &running) })
	running.Go(func() {
		for c, err := tcp.Accept(); err == nil; c, err = tcp.Accept() {
			running.Go(func() { s.stream(c) })
		}
	})
	t.Cleanup(func() { _, _ = udp.Close(), tcp.Close(); close(s.ends); running.Wait() })
	return s
}

func (s *nameServer) datagrams(c net.PacketConn, running *sync.WaitGroup) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		query := slices.Clone(b[:n])
		running.Go(func() {
			if answer := s.answer(query, 512); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		})
	}
}

func (s *nameServer) stream(c net.Conn) {
	defer c.Close()
	length := make([]byte, 2)
	if _, err := io.ReadFull(c, length); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(length))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	answer := s.answer(query, 1<<16-1)
	whole := append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)
	for _, part := range [][]byte{whole[:1], whole[1:7], whole[7:]} { // reads need not end where answers do
		if _, err := c.Write(part); err != nil {
			return
		}
	}
}

// answer is what the server says to a query; nil: nothing.
func (s *nameServer) answer(query []byte, most int) []byte {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 || s.silent {
		return nil
	}
	q := m.Questions[0]
	s.gather(q)
	m.Response, m.RecursionAvailable, m.RCode, m.Authorities, m.Additionals = true, true, s.code[q.Type], nil, nil
	if m.RCode == dnsmessage.RCodeSuccess {
		m.Answers = s.records[q.Name.String()+q.Type.String()]
	}
	packed, err := m.Pack()
	if err != nil {
		s.t.Error(err)
	}
	if len(packed) > most {
		m.Answers, m.Truncated = nil, true
		packed, _ = m.Pack()
	}
	return packed
}

// gather waits for the crowd, without the mutex.
func (s *nameServer) gather(q dnsmessage.Question) {
	if s.crowd == nil || q.Type == dnsmessage.TypeSRV {
		return
	}
	here := s.crowd.here
	if s.crowd.names[q.Name.String()] = true; len(s.crowd.names) == s.crowd.want {
		close(here)
		s.crowd.want = 0
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-here:
	case <-s.ends:
	}
}

func (s *nameServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// hosts gives a name addresses, for ttl seconds.
func (s *nameServer) hosts(name string, ttl uint32, addresses ...string) {
	s.set(func() {
		delete(s.records, name+dnsmessage.TypeA.String())
		delete(s.records, name+dnsmessage.TypeAAAA.String())
		for _, a := range addresses {
			ip := netip.MustParseAddr(a)
			kind, body := dnsmessage.TypeAAAA, dnsmessage.ResourceBody(&dnsmessage.AAAAResource{AAAA: ip.As16()})
			if ip.Is4() {
				kind, body = dnsmessage.TypeA, &dnsmessage.AResource{A: ip.As4()}
			}
			s.records[name+kind.String()] = append(s.records[name+kind.String()], resource(name, kind, ttl, body))
		}
	})
}

func (s *nameServer) service(name string, ttl uint32, targets map[string]uint16) {
	s.set(func() {
		key := name + dnsmessage.TypeSRV.String()
		delete(s.records, key)
		for target, port := range targets {
			body := &dnsmessage.SRVResource{Priority: port % 2, Weight: 1, Port: port, Target: dnsmessage.MustNewName(target)}
			s.records[key] = append(s.records[key], resource(name, dnsmessage.TypeSRV, ttl, body))
		}
	})
}

func resource(name string, kind dnsmessage.Type, ttl uint32, body dnsmessage.ResourceBody) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET, TTL: ttl}
	return dnsmessage.Resource{Header: h, Body: body}
}

func (s *nameServer) look(t *testing.T, kind fleet.DiscoveryKind, name string) ([]fleet.EngineID, time.Duration, error) {
	says, ttl, err := dnsLook(fleet.Discovery{Kind: kind, Where: name, Port: 80, Resolver: s.address})(t.Context())
	return says.engines, ttl, err
}

func TestDNS(t *testing.T) {
	t.Parallel()
	s := startNameServer(t)
	s.hosts("one.test.", 30, "10.0.0.2", "10.0.0.1")
	s.hosts("both.test.", 7, "10.0.0.1", "2001:db8::1")
	s.hosts("no-time.test.", 0, "10.0.0.1")
	s.hosts("bad.test.", 5, "224.0.0.1")
	many := make([]string, 200) // more than a datagram holds
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}).String()
	}
	s.hosts("many.test.", 9, many...)
	s.hosts("gone.test.", 3)
	s.service("_http._tcp.vllm.test.", 20, map[string]uint16{"one.test.": 8000, "both.test.": 8001, "gone.test.": 8002})
	tests := map[string]struct {
		kind fleet.DiscoveryKind
		want []fleet.EngineID
		ttl  time.Duration
		err  string
	}{
		"one.test.":     {fleet.DiscoverDNS, []fleet.EngineID{"10.0.0.1:80", "10.0.0.2:80"}, 30 * time.Second, ""},
		"both.test.":    {fleet.DiscoverDNS, []fleet.EngineID{"10.0.0.1:80", "[2001:db8::1]:80"}, 7 * time.Second, ""},
		"no-time.test.": {fleet.DiscoverDNS, []fleet.EngineID{"10.0.0.1:80"}, minGood, ""},
		"bad.test.":     {fleet.DiscoverDNS, nil, 0, "224.0.0.1:80 is not the address of a machine"},
		"gone.test.":    {fleet.DiscoverDNS, nil, 0, ""},
		"_http._tcp.vllm.test.": {fleet.DiscoverSRV, []fleet.EngineID{
			"10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "[2001:db8::1]:8001",
		}, 7 * time.Second, ""},
		"_http._tcp.none.test.": {fleet.DiscoverSRV, nil, 0, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ttl, err := s.look(t, test.kind, name)
			if diff := cmp.Diff(test.want, got); diff != "" || ttl != test.ttl {
				t.Errorf("good for %v, want %v; engines (-want +got):\n%s", ttl, test.ttl, diff)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
		})
	}
	t.Run("over TCP", func(t *testing.T) {
		got, ttl, err := s.look(t, fleet.DiscoverDNS, "many.test.")
		if len(got) != len(many) || ttl != 9*time.Second || err != nil {
			t.Errorf("%d engines, good for %v, %v", len(got), ttl, err)
		}
	})
}

// A name server that says that there is nothing is believed, one that cannot tell is not.
func TestANameServerCannotTell(t *testing.T) {
	t.Parallel()
	const a, aaaa, srv = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV
	for name, test := range map[string]struct {
		code  dnsmessage.RCode
		of    []dnsmessage.Type
		fails bool
	}{
		"no such name":     {dnsmessage.RCodeNameError, []dnsmessage.Type{a, aaaa, srv}, false},
		"failure":          {dnsmessage.RCodeServerFailure, []dnsmessage.Type{a, aaaa, srv}, true},
		"refused":          {dnsmessage.RCodeRefused, []dnsmessage.Type{a, aaaa, srv}, true},
		"failure of IPv4":  {dnsmessage.RCodeServerFailure, []dnsmessage.Type{a}, true},
		"failure of IPv6":  {dnsmessage.RCodeServerFailure, []dnsmessage.Type{aaaa}, true},
		"IPv4 is refused":  {dnsmessage.RCodeRefused, []dnsmessage.Type{a}, true},
		"IPv6 is refused":  {dnsmessage.RCodeRefused, []dnsmessage.Type{aaaa}, true},
		"failure of SRV":   {dnsmessage.RCodeServerFailure, []dnsmessage.Type{srv}, true},
		"no such services": {dnsmessage.RCodeNameError, []dnsmessage.Type{srv}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNameServer(t)
			s.hosts("both.test.", 30, "10.0.0.1", "2001:db8::1")
			s.hosts("four.test.", 30, "10.0.0.1")
			s.service("_http._tcp.test.", 30, map[string]uint16{"both.test.": 80})
			s.set(func() {
				s.code = map[dnsmessage.Type]dnsmessage.RCode{}
				for _, kind := range test.of {
					s.code[kind] = test.code
				}
			})
			look := func(kind fleet.DiscoveryKind, name string) {
				if got, _, err := s.look(t, kind, name); len(got) > 0 || (err != nil) != test.fails {
					t.Errorf("%s: engines %v, error %v", name, got, err)
				}
			}
			look(fleet.DiscoverSRV, "_http._tcp.test.")
			if test.of[0] != srv {
				look(fleet.DiscoverDNS, "both.test.")
				look(fleet.DiscoverDNS, "four.test.")
			}
		})
	}
	t.Run("not of this family, says the hosts file", func(t *testing.T) {
		// As the resolver says of a name that has addresses there, but none of the family.
		if err := notFoundIsNone(&net.AddrError{Err: "no suitable address found", Addr: "localhost."}); err != nil {
			t.Error(err)
		}
		_, _, err := startNameServer(t).look(t, fleet.DiscoverDNS, "localhost.")
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		s := startNameServer(t)
		s.set(func() { s.silent = true })
		h := find(t, fleet.Discovery{Kind: fleet.DiscoverDNS, Where: "one.test.", Port: 80, Resolver: s.address, Every: time.Hour})
		h.until(t, "a time-out", func(a *Answer) bool { return a.Err != nil })
	})
}

// Targets of SRV records do not wait for one another: all have the time of one look.
func TestTargetsAreAskedForAtOnce(t *testing.T) {
	t.Parallel()
	s := startNameServer(t)
	targets := map[string]uint16{}
	for i := range 3 * maxTargets {
		name := fmt.Sprintf("vllm-%d.test.", i)
		s.hosts(name, 30, fmt.Sprintf("10.0.0.%d", i))
		targets[name] = 80
	}
	s.service("_http._tcp.test.", 30, targets)
	s.set(func() { s.crowd = &crowd{want: maxTargets, names: map[string]bool{}, here: make(chan struct{})} })
	ctx, cancel := context.WithTimeout(t.Context(), lookTimeout)
	defer cancel()
	says, _, err := dnsLook(fleet.Discovery{Kind: fleet.DiscoverSRV, Where: "_http._tcp.test.", Resolver: s.address})(ctx)
	if err != nil || len(says.engines) != len(targets) {
		t.Errorf("%d engines of %d, %v", len(says.engines), len(targets), err)
	}
}

// A name is asked for again when its answer is no longer good.
func TestANameIsFollowed(t *testing.T) {
	t.Parallel()
	s := startNameServer(t)
	s.hosts("vllm.test.", 1, "10.0.0.1")
	h := find(t, fleet.Discovery{Kind: fleet.DiscoverDNS, Where: "vllm.test.", Port: 80, Resolver: s.address, Every: time.Hour})
	h.engines(t, "1")
	s.hosts("vllm.test.", 3600, "10.0.0.1", "10.0.0.2")
	h.engines(t, "1 2")
	asked := s.asked.Load()
	select {
	case a := <-h:
		t.Errorf("asked again although the answer is good for an hour: %+v", a)
	case <-time.After(2 * minGood):
	}
	if n := s.asked.Load(); n != asked {
		t.Errorf("%d more queries", n-asked)
	}
}

func TestPause(t *testing.T) {
	for _, test := range []struct{ good, atMost, want time.Duration }{
		{0, 0, 10 * time.Second},
		{time.Millisecond, 0, minGood},
		{time.Minute, 0, time.Minute},
		{24 * time.Hour, 0, maxGood},
		{600 * time.Second, 2 * time.Second, 2 * time.Second},
		{3 * time.Second, time.Hour, 3 * time.Second},
		{24 * time.Hour, time.Hour, maxGood},
	} {
		source := fleet.Discovery{Every: 10 * time.Second, AtMost: test.atMost}
		if got := pause(test.good, &source); got != test.want {
			t.Errorf("pause(%v) at most %v = %v, want %v", test.good, test.atMost, got, test.want)
		}
	}
}

// Nonsense on the wire harms nobody but the answer.
func FuzzReadTTL(f *testing.F) {
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Answers: []dnsmessage.Resource{
		resource("a.", dnsmessage.TypeA, 30, &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}}),
	}}
	packed, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(_ *testing.T, message []byte) {
		ttl := &shortest{}
		readTTL(message, ttl)
		_ = ttl.of()
	})
}
