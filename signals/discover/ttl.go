package discover

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Go's resolver does not tell the TTLs of what it found, so they are read from the
// messages as they pass. What cannot be read is left to the resolver: then nobody says
// for how long the answer is good.

// shortest is the least of the TTLs that were heard.
type shortest struct {
	mu    sync.Mutex // guards what follows: the resolver asks for both families at once
	heard bool
	ttl   time.Duration
}

func (s *shortest) note(ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heard || ttl < s.ttl {
		s.heard, s.ttl = true, ttl
	}
}

// of is for how long the answers are good; 0: nobody said. One that is good for no time
// is so for the least that there is.
func (s *shortest) of() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heard {
		return 0
	}
	return max(s.ttl, minGood)
}

// listen notes the TTLs of the answers that come over a connection. The resolver tells
// by its type whether messages on it have a length in front.
func listen(c net.Conn, ttl *shortest) net.Conn {
	if packets, ok := c.(net.PacketConn); ok {
		return &datagrams{c, packets, ttl}
	}
	return &stream{Conn: c, ttl: ttl}
}

// datagrams are answers over UDP, one a read.
type datagrams struct {
	net.Conn
	net.PacketConn
	ttl *shortest
}

func (d *datagrams) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if err == nil {
		readTTL(b[:n], d.ttl)
	}
	return n, err
}

// These are of both; the connection's are meant.
func (d *datagrams) Close() error                       { return d.Conn.Close() }
func (d *datagrams) LocalAddr() net.Addr                { return d.Conn.LocalAddr() }
func (d *datagrams) SetDeadline(t time.Time) error      { return d.Conn.SetDeadline(t) }
func (d *datagrams) SetReadDeadline(t time.Time) error  { return d.Conn.SetReadDeadline(t) }
func (d *datagrams) SetWriteDeadline(t time.Time) error { return d.Conn.SetWriteDeadline(t) }

// stream is an answer over TCP: its length, then itself, in any number of reads.
type stream struct {
	net.Conn
	ttl  *shortest
	seen []byte // of the answer so far; at most 64 KiB and a length
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.seen = append(s.seen, b[:n]...)
	if len(s.seen) >= 2 {
		if end := 2 + int(binary.BigEndian.Uint16(s.seen)); len(s.seen) >= end {
			readTTL(s.seen[2:end], s.ttl)
			s.seen = s.seen[end:]
		}
	}
	return n, err
}

// readTTL notes the TTLs of the answers in a message.
func readTTL(message []byte, ttl *shortest) {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || header.RCode != dnsmessage.RCodeSuccess || header.Truncated || p.SkipAllQuestions() != nil {
		return
	}
	for {
		h, err := p.AnswerHeader()
		if err != nil { // the end, or nonsense
			return
		}
		ttl.note(time.Duration(h.TTL) * time.Second)
		if p.SkipAnswer() != nil {
			return
		}
	}
}
