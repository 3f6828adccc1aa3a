package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// maxOrder bounds the body of a request that changes something, bytes.
const maxOrder = 64 << 10

// Action does what one path is asked to do by a JSON body, and answers with a value or
// why it did not. An error that is the asker's own mistake wraps [ErrQuery].
type Action func(body []byte) (any, error)

// act lets a request do something, if it may.
func act(w http.ResponseWriter, r *http.Request, action Action) {
	if status, err := barred(r); err != nil {
		refuse(w, status, err)
		return
	}
	if err := CheckKeys(r.URL.RawQuery); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrder))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body cannot be read: %w", err))
		return
	}
	answer(w, func() (any, error) { return action(body) })
}

var (
	errElsewhere = errors.New("only a program on the control plane's own machine may change anything")
	errHost      = errors.New("ask by a loopback address or localhost: another name may be that of a web page")
	errCross     = errors.New("a web page may not change anything")
	errNoJSON    = errors.New("send application/json")
)

// decode reads an order into a struct, strictly: a key that nobody knows is a mistake, in
// other letter case too, and so is one that comes twice, and what stands behind the order.
func decode(body []byte, into any) error {
	if err := checkKeysOf(body, keysOf(into)); err != nil {
		return err
	}
	var wrong *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, into); {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: it cannot be a %s", wrong.Field[strings.LastIndex(wrong.Field, ".")+1:], wrong.Value)
	case err != nil:
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return nil
}

// keysOf are the keys of a struct's JSON.
func keysOf(into any) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(into).Elem()) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkKeysOf says what is wrong with the keys of the one object that a body must be. Go's
// own reader takes keys in any letter case, and of two the last.
func checkKeysOf(body []byte, known []string) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return errors.New("the body is empty: send a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err == nil && t != json.Delim('{') {
		return errors.New("the body is no JSON object")
	} else if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return fmt.Errorf("the body is not JSON: %w", err)
		}
		name, _ := key.(string)
		switch {
		case !slices.Contains(known, name):
			return fmt.Errorf("unknown key %.100q: write any of %s", name, strings.Join(known, ", "))
		case seen[name]:
			return fmt.Errorf("the key %q comes twice", name)
		}
		seen[name] = true
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the order")
	}
	return nil
}

// barred says why a request may not change anything. The admin API asks nobody who he
// is, so whoever is on this machine may; but not a web page that a browser here shows.
// Pages can send requests anywhere: this content type only after they asked, which
// nobody answers, and to a name of their own that leads here only under that name.
func barred(r *http.Request) (status int, why error) {
	content, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case !fromHere(r.RemoteAddr):
		return http.StatusForbidden, errElsewhere
	case !isHere(r.Host):
		return http.StatusForbidden, errHost
	case new(http.CrossOriginProtection).Check(r) != nil:
		return http.StatusForbidden, errCross
	case err != nil || content != "application/json":
		return http.StatusUnsupportedMediaType, errNoJSON
	}
	return 0, nil
}

// fromHere says whether a connection comes from this machine.
func fromHere(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// isHere says whether a request's Host is this machine and nothing else.
func isHere(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && at.Unmap().IsLoopback()
}
