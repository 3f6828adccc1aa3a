package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// FetchStatus asks the control plane whose admin API is at "host:port".
func FetchStatus(ctx context.Context, address string) (*Status, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return nil, fmt.Errorf("admin API %q: want host:port: %w", address, err)
	}
	direct := &http.Transport{} // no proxy stands before a control plane
	defer direct.CloseIdleConnections()
	response, err := (&http.Client{Transport: direct}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("no control plane answers at %s: is `weir serve` running, and with this --admin address? (%w)", address, err)
	}
	defer response.Body.Close()
	body := json.NewDecoder(io.LimitReader(response.Body, maxResponse))
	if response.StatusCode != http.StatusOK {
		var f failure
		_ = body.Decode(&f) // the status says it where the body does not
		return nil, fmt.Errorf("%s answers %s %s: is it the admin API of a `weir serve`?", address, response.Status, f.Error)
	}
	s := &Status{}
	if err := body.Decode(s); err != nil {
		return nil, fmt.Errorf("%s answers what is no status: is it the admin API of a `weir serve`? (%w)", address, err)
	}
	return s, nil
}
