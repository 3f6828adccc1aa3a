package signals

import (
	"net/http"

	"weir/fleet"
)

// NewEngineClient returns a client of its own for asking a pool's engines, and the
// scheme of their URLs. It follows no redirect and no proxy, asks for no
// compression, and judges certificates as Envoy does.
func NewEngineClient(t *fleet.TLS) (client *http.Client, scheme string, err error) {
	return newProbeClient(t)
}
