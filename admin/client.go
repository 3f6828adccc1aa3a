package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// FetchStatus asks the control plane whose admin API is at "host:port".
func FetchStatus(ctx context.Context, address string) (*Status, error) {
	s := &Status{}
	err := fetch(ctx, address, "/status", s)
	for i := range s.Profiles {
		s.Profiles[i].Command = fitCommand(address, s.Profiles[i].Pool)
	}
	return s, err
}

// FetchBeliefs asks it what it believes.
func FetchBeliefs(ctx context.Context, address string) (*Beliefs, error) {
	b := &Beliefs{}
	return b, fetch(ctx, address, "/beliefs", b)
}

// Fetch asks it for the answer to a path with a query.
func Fetch(ctx context.Context, address, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return fetch(ctx, address, path, into)
}

func fetch(ctx context.Context, address, path string, into any) error {
	request, err := newRequest(ctx, http.MethodGet, address, path, nil)
	if err != nil {
		return err
	}
	return exchange(address, request, into)
}

func newRequest(ctx context.Context, method, address, path string, body io.Reader) (*http.Request, error) {
	_, _, err := net.SplitHostPort(address)
	if err == nil && strings.ContainsAny(address, "/?#@") {
		err = errors.New("that is more than a host and a port")
	}
	var request *http.Request
	if err == nil {
		request, err = http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	}
	if err != nil {
		return nil, fmt.Errorf("admin API %q: want host:port, as 127.0.0.1:18001 is: %w", address, err)
	}
	return request, nil
}

// send orders something.
func send(ctx context.Context, address, path string, order, into any) error {
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	request, err := newRequest(ctx, http.MethodPost, address, path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	return exchange(address, request, into)
}

// AskReady asks the process whose admin API is at "host:port", weir or weir-extproc,
// whether it is ready, and returns why it is not.
func AskReady(ctx context.Context, address string) error {
	request, err := newRequest(ctx, http.MethodGet, address, "/readyz", nil)
	if err != nil {
		return err
	}
	direct := &http.Transport{}
	defer direct.CloseIdleConnections()
	response, err := (&http.Client{Transport: direct}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	why, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // the status alone says enough
	return fmt.Errorf("%s answers %s: %s", address, response.Status, bytes.TrimSpace(why))
}

// exchange makes a request and reads its answer.
func exchange(address string, request *http.Request, into any) error {
	direct := &http.Transport{} // no proxy stands before a control plane
	defer direct.CloseIdleConnections()
	response, err := (&http.Client{Transport: direct}).Do(request)
	if err != nil {
		return fmt.Errorf("no control plane answers at %s: is `weir serve` running, and with this --admin address? (%w)", address, err)
	}
	defer response.Body.Close()
	body := json.NewDecoder(io.LimitReader(response.Body, maxResponse))
	if response.StatusCode != http.StatusOK {
		var f failure
		_ = body.Decode(&f) // the status says it where the body does not
		switch response.StatusCode {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusServiceUnavailable:
			if f.Error != "" {
				return errors.New(f.Error)
			}
		}
		return fmt.Errorf("%s answers %s %s: is it the admin API of a `weir serve`?", address, response.Status, f.Error)
	}
	if err := body.Decode(into); err != nil {
		return fmt.Errorf("%s answers what is no %s: is it the admin API of a `weir serve`? (%w)", address, request.URL.Path[1:], err)
	}
	return nil
}
