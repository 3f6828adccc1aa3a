package signals

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"weir/fleet"
)

// newProbeClient returns a client of its own for a pool's engines. It follows no
// redirect, since only the engine itself can say that it is ready, and no proxy.
func newProbeClient(t *fleet.TLS) (client *http.Client, scheme string, err error) {
	transport := &http.Transport{
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        10 * probeInterval,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxProbeBody,
	}
	scheme = "http"
	if t != nil {
		scheme = "https"
		if transport.TLSClientConfig, err = tlsConfig(t); err != nil {
			return nil, "", err
		}
	}
	client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if t != nil && t.SNI != "" {
		client.Transport = named{transport, t.SNI}
	}
	return client, scheme, nil
}

// named asks by a name, as Envoy does where the fleet file gives one.
type named struct {
	*http.Transport
	host string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.WithContext(r.Context()) // a copy: the caller's is not ours to change
	r.Host = n.host
	return n.Transport.RoundTrip(r)
}

// tlsConfig judges an engine's certificate as Envoy does: against the CA file or
// the machine's roots, and by name only where the fleet file gives one.
func tlsConfig(t *fleet.TLS) (*tls.Config, error) {
	c := &tls.Config{ServerName: t.SNI}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA certificates: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA certificates: no certificate in %q", t.CAFile)
		}
	}
	if t.SNI == "" {
		c.InsecureSkipVerify = true // the name only: the chain is verified below
		c.VerifyConnection = verifyChain(c.RootCAs)
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(options)
		return err
	}
}
