package stage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Ports come from below the range from which the kernel takes ports for outgoing
// connections, and each is locked by a file for the life of its stage, so that
// stages in other processes keep away although nobody listens on it yet.
const (
	firstPort = 12000
	lastPort  = 31999
)

type port struct {
	number int
	lock   *os.File
}

// Address reserves a free port of 127.0.0.1 for as long as the stage runs.
func (s *Stage) Address() (string, error) {
	for range 1000 {
		p, err := lockPort(firstPort + rand.IntN(lastPort-firstPort+1))
		if err != nil {
			return "", err
		}
		if p == nil {
			continue
		}
		s.ports = append(s.ports, p)
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)), nil
	}
	return "", errors.New("no free port between 12000 and 31999 in 1000 tries")
}

// lockPort returns nil where the port is another's.
func lockPort(number int) (*port, error) {
	dir := filepath.Join(os.TempDir(), "weir-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock of port %d: %w", number, err)
	}
	p := &port{number, lock}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !free(number) {
		return nil, p.free()
	}
	return p, nil
}

func (p *port) free() error { return p.lock.Close() }

func free(number int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func connects(address string) func() bool {
	return func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}
}
