package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// socketMode lets the owner and the group of a socket connect, whatever the umask.
const socketMode = 0o660

// socketPath is the path of a Unix socket, if that is meant.
func socketPath(where string) (path string, ok bool) {
	path = strings.TrimPrefix(where, "unix://")
	return path, strings.HasPrefix(path, "/")
}

func checkListen(where string) error {
	if _, ok := socketPath(where); ok {
		return nil
	}
	if _, _, err := net.SplitHostPort(where); err != nil {
		return fmt.Errorf("address %q: want ip:port or the absolute path of a Unix socket", where)
	}
	return nil
}

// listen opens a TCP port or a Unix socket.
func listen(where string) (net.Listener, error) {
	path, ok := socketPath(where)
	if !ok {
		return net.Listen("tcp", where)
	}
	if err := makeRoom(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// makeRoom removes a socket that nobody listens on, which is a dead
// predecessor's. Anything else that stands there is somebody's.
func makeRoom(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errors.New("what stands there is not a socket: remove it or choose another path")
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return errors.New("another process serves it")
	}
	return os.Remove(path)
}
